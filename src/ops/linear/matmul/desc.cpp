#include "ops/linear/matmul/desc.h"

#include "core/rows.h"

#include <string>

namespace planq::matmul {

namespace {

constexpr DType kInputs[] = {DType::Float16, DType::BFloat16};

Fault resolve_inputs(Fields& f) {
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kInputs); !fault.ok()) return fault;
  if (f.weight_dtype == DType::Unset) f.weight_dtype = f.input_dtype;
  if (f.weight_dtype == f.input_dtype) return {};
  return {"weight_dtype", "expected " + std::string(name_of(f.input_dtype)) +
                              " as input_dtype, got " + std::string(name_of(f.weight_dtype))};
}

Fault resolve_outputs(Fields& f) {
  if (f.output_dtype == DType::Unset) f.output_dtype = f.input_dtype;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kSumOutputs); !fault.ok())
    return fault;
  return checks::addends(f.bias_dtype, f.residual_dtype);
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = resolve_inputs(f); !fault.ok()) return fault;
  if (Fault fault = resolve_outputs(f); !fault.ok()) return fault;
  if (f.accumulation == Accumulation::Sequential)
    return {"accumulation", "expected lanes or tensor_sm90, got sequential"};
  return checks::gemm_shapes(f.input(), f.weight());
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"matmul", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::matmul
