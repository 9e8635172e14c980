#include "ops/linear/linear_fp8/desc.h"

#include <string>

#include "core/rows.h"

namespace planq::linear_fp8 {

namespace {

constexpr DType kCodes[] = {DType::Float8E4M3FN, DType::Float8E5M2};

Fault resolve_dtypes(Fields& f) {
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kCodes); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("weight_dtype", f.weight_dtype, kCodes); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kSumOutputs); !fault.ok())
    return fault;
  return checks::addends(f.bias_dtype, f.residual_dtype);
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = resolve_dtypes(f); !fault.ok()) return fault;
  if (f.accumulation != Accumulation::TensorSm90)
    return {"accumulation", "expected tensor_sm90, got " + std::string(name_of(f.accumulation))};
  if (Fault fault = checks::layer_weight(f.weight_shape); !fault.ok()) return fault;
  if (Fault fault = checks::gemm_shapes(f.input(), f.weight()); !fault.ok()) return fault;
  if (f.input_scope.kind == ScopeKind::Group || f.weight_scope.kind == ScopeKind::Block)
    return checks::gemm_blocks(f.input_scope, f.input_shape, f.weight_scope, f.weight_shape);
  return checks::gemm_scopes(f.input_scope, f.input_shape, f.weight_scope, f.weight_shape);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"linear_fp8", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::linear_fp8
