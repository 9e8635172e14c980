// Checks that descriptors of several linear operators share.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/checks.h"
#include "ops/linear/gemm.h"

namespace planq::checks {

// The output types of sums in float32.
inline constexpr DType kSumOutputs[] = {DType::Float16, DType::BFloat16, DType::Float32};
inline constexpr DType kIntegerCodes[] = {DType::Int8, DType::UInt8, DType::Int4, DType::UInt4};

// The largest magnitude of a code; Asymmetric: of its difference from a zero point, which is a
// code.
std::int64_t largest_code(DType dtype, Mode mode);
// That a sum of `terms` numbers of at most this magnitude stays in int32.
Fault sum_in_range(std::string_view field, std::int64_t terms, std::int64_t magnitude);
// input_shape and weight_shape: at least two axes each, the same k, and leading axes that are
// equal, 1 or missing.
Fault gemm_shapes(const linear::OperandField& input, const linear::OperandField& weight);
// weight_shape of a layer: (n, k).
Fault layer_weight(const Shape& weight);
// bias_dtype and residual_dtype: Unset, or floating.
Fault addends(DType bias, DType residual);
// input_scope: token or tensor. weight_scope: channel(0) or tensor.
Fault gemm_scopes(Scope& input, const Shape& input_shape, Scope& weight, const Shape& weight_shape);
// The same of blocks of scales: group(128) of the input's rows, and block(128, 128) of the weights.
Fault gemm_blocks(Scope& input, const Shape& input_shape, Scope& weight, const Shape& weight_shape);
// planq, bitsandbytes or baracuda; the latter two have no zero points.
Fault gemm_convention(Convention convention, Mode input, Mode weight);

}  // namespace planq::checks
