#include "ops/linear/linear_w8a8/desc.h"

#include "core/scope.h"
#include "ops/affine/checks.h"

namespace planq::linear_w8a8 {

namespace {

Fault resolve_dtypes(Fields& f) {
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kIntegerCodes); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("weight_dtype", f.weight_dtype, checks::kIntegerCodes);
      !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kFloats); !fault.ok())
    return fault;
  if (Fault fault = checks::scale_dtype(f.output_dtype, f.scale_dtype); !fault.ok()) return fault;
  if (f.bias_dtype != DType::Unset)
    if (Fault fault = checks::dtype("bias_dtype", f.bias_dtype, checks::kFloats); !fault.ok())
      return fault;
  if (f.residual_dtype == DType::Unset) return {};
  return checks::dtype("residual_dtype", f.residual_dtype, checks::kFloats);
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = resolve_dtypes(f); !fault.ok()) return fault;
  if (f.weight_shape.rank != 2)
    return {"weight_shape",
            "expected (n, k), got " + shape_text(f.weight_shape.dims.data(), f.weight_shape.rank)};
  if (Fault fault = checks::product_shapes(f.input(), f.weight()); !fault.ok()) return fault;
  if (Fault fault =
          checks::product_scopes(f.input_scope, f.input_shape, f.weight_scope, f.weight_shape);
      !fault.ok())
    return fault;
  if (Fault fault =
          checks::product_convention(f.convention, f.input_mode, f.weight_mode, f.output_dtype);
      !fault.ok())
    return fault;
  return checks::sum_in_range("input_shape", f.input_shape.last(),
                              checks::largest_code(f.input_dtype, f.input_mode) *
                                  checks::largest_code(f.weight_dtype, f.weight_mode));
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  const Shape rows = parameter_shape(f.input_shape, {ScopeKind::Token});
  const Shape columns = {1, {f.weight_shape[0]}};
  const Shape output = linear::product_shape(f.input(), f.weight());
  const Shape by_row = parameter_shape(f.input_shape, f.input_scope);
  const Shape by_column = parameter_shape(f.weight_shape, f.weight_scope);
  const bool input_shifts = f.input_mode == Mode::Asymmetric;
  const bool weight_shifts = f.weight_mode == Mode::Asymmetric;
  specs[kInput].expect(f.input_dtype, packed_shape(f.input_shape, f.input_dtype));
  specs[kWeight].expect(f.weight_dtype, packed_shape(f.weight_shape, f.weight_dtype));
  specs[kOutput].expect(f.output_dtype, output);
  specs[kInputScale].expect(f.scale_dtype, by_row);
  specs[kWeightScale].expect(f.scale_dtype, by_column);
  specs[kInputZeroPoint].expect(DType::Int32, by_row, input_shifts);
  specs[kWeightZeroPoint].expect(DType::Int32, by_column, weight_shifts);
  specs[kInputSum].expect(DType::Int32, rows, weight_shifts);
  specs[kWeightSum].expect(DType::Int32, columns, input_shifts);
  specs[kBias].expect(f.bias_dtype, columns, f.bias_dtype != DType::Unset);
  specs[kResidual].expect(f.residual_dtype, output, f.residual_dtype != DType::Unset);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"linear_w8a8", kFields, kOperands, resolve, specify, kTables};

}  // namespace planq::linear_w8a8
