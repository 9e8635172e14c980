#include "ops/linear/linear_llm_int8/desc.h"

#include "core/rows.h"

#include <limits>
#include <string>

namespace planq::linear_llm_int8 {

namespace {

// LLM.int8 has no zero points, and one convention.
Fault resolve_codes(const Fields& f) {
  if (f.input_mode != Mode::Symmetric) return {"input_mode", "LLM.int8 goes with Mode.SYMMETRIC"};
  if (f.weight_mode != Mode::Symmetric) return {"weight_mode", "LLM.int8 goes with Mode.SYMMETRIC"};
  if (f.convention == Convention::Planq) return {};
  return {"convention", "outliers stand between the scales of planq's own convention, got " +
                            std::string(name_of(f.convention))};
}

// Tensor cores multiply values and codes in a type of 16 bits, onto a sum in float32.
Fault resolve_accumulation(const Fields& f) {
  if (f.accumulation == Accumulation::Sequential) return {};
  if (f.accumulation != Accumulation::TensorSm90)
    return {"accumulation",
            "expected sequential or tensor_sm90, got " + std::string(name_of(f.accumulation))};
  if (f.outlier_dtype == DType::Float32)
    return {"accumulation",
            "expected sequential, since tensor_sm90 multiplies outliers of float16 or bfloat16, "
            "got float32"};
  if (f.compute() == DType::Float32) return {};
  return {"accumulation",
          "expected sequential, since tensor_sm90 adds up in float32, and float64 outputs need "
          "float64"};
}

Fault resolve_outliers(const Fields& f) {
  constexpr DType kValues[] = {DType::Float16, DType::BFloat16, DType::Float32};
  if (f.capacity < 0 || f.capacity > std::numeric_limits<std::int32_t>::max())
    return {"capacity", "expected 0 to 2^31 - 1, got " + std::to_string(f.capacity)};
  if (Fault fault = checks::dtype("outlier_dtype", f.outlier_dtype, kValues); !fault.ok())
    return fault;
  return resolve_accumulation(f);
}

Fault resolve(Descriptor& descriptor) {
  constexpr DType kCodes[] = {DType::Int8, DType::Int4};
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = linear::resolve_layer(f, kCodes); !fault.ok()) return fault;
  if (Fault fault = resolve_codes(f); !fault.ok()) return fault;
  return resolve_outliers(f);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"linear_llm_int8", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::linear_llm_int8
