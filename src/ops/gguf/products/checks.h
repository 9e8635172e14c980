// Checks that descriptors of products with blocks share.
#pragma once

#include <string>

#include "ops/gguf/checks.h"
#include "ops/linear/checks.h"

namespace planq::checks {

inline constexpr DType kInputsOfBlocks[] = {DType::Float16, DType::BFloat16, DType::Float32,
                                            DType::Int8};

// The fields input_dtype, output_dtype, bias_dtype and residual_dtype.
inline Fault dtypes_of_product(DType input, DType output, DType bias, DType residual) {
  if (Fault fault = dtype("input_dtype", input, kInputsOfBlocks); !fault.ok()) return fault;
  if (Fault fault = dtype("output_dtype", output, kSumOutputs); !fault.ok()) return fault;
  return addends(bias, residual);
}

// A type that weights have in files, as the text of a fault; empty: it is one.
inline std::string weight_type(GgufType type) {
  if (type != GgufType::Q8_1 && type != GgufType::Q8_K) return {};
  return "expected a type that weights have in files; " + std::string(name_of(type)) +
         " is for activations, inside of GGML";
}

}  // namespace planq::checks
