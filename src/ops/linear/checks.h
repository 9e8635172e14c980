// Checks that the descriptors of several products share.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/checks.h"
#include "ops/linear/gemm.h"

namespace planq::checks {

// What sums in float32 are rounded to.
inline constexpr DType kSumOutputs[] = {DType::Float16, DType::BFloat16, DType::Float32};
inline constexpr DType kIntegerCodes[] = {DType::Int8, DType::UInt8, DType::Int4, DType::UInt4};

// The largest magnitude of a code, or of its difference from a zero point among the codes.
std::int64_t largest_code(DType dtype, Mode mode);
// No sum of `terms` numbers of at most this magnitude leaves int32.
Fault sum_in_range(std::string_view field, std::int64_t terms, std::int64_t magnitude);
// input_shape and weight_shape of a product: at least two axes each, one k, leading axes that are
// equal, 1 or missing.
Fault product_shapes(const linear::OperandField& input, const linear::OperandField& weight);
// weight_shape of a layer: (n, k).
Fault layer_weight(const Shape& weight);
// Where they are not Unset, bias_dtype and residual_dtype are those of floating numbers.
Fault addends(DType bias, DType residual);
// input_scope: token or tensor. weight_scope: channel(0) or tensor.
Fault product_scopes(Scope& input, const Shape& input_shape, Scope& weight,
                     const Shape& weight_shape);
// PLANQ, BITSANDBYTES or BARACUDA, with what the latter two have.
Fault product_convention(Convention convention, Mode input, Mode weight);

}  // namespace planq::checks
