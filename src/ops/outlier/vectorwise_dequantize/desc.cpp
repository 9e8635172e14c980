#include "ops/outlier/vectorwise_dequantize/desc.h"

#include "core/rows.h"
#include "ops/outlier/vectorwise_checks.h"

namespace planq::vectorwise_dequantize {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = outlier::check_codes("input_dtype", f.form, f.input_dtype); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kFloats); !fault.ok())
    return fault;
  return outlier::check_axis(f.form, f.shape, f.axis);
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  const Shape parameters = parameter_shape(f.shape, scope_of(f));
  specs[kInput].expect(f.input_dtype, f.shape);
  specs[kOutput].expect(f.output_dtype, f.shape);
  specs[kScale].expect(compute_dtype(f.output_dtype), parameters);
  specs[kZeroPoint].expect(DType::Int32, parameters, outlier::has_zero_point(f.form));
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "vectorwise_dequantize", kFields, kOperands, resolve, specify, rows::apart, kTables};

}  // namespace planq::vectorwise_dequantize
