// Checks that the descriptors of several operators share, with the sentences they answer. A check
// that has a default to offer fills the field in.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/descriptor.h"
#include "core/status.h"

namespace planq::checks {

inline constexpr DType kFloats[] = {DType::Float16, DType::BFloat16, DType::Float32,
                                    DType::Float64};
inline constexpr DType kCodes[] = {DType::Int8,  DType::UInt8,        DType::Int4,
                                   DType::UInt4, DType::Float8E4M3FN, DType::Float8E5M2};

// Rank between smallest_rank and 8, no negative extent, at most 2^60 elements.
Fault shape(std::string_view field, const Shape& shape, int smallest_rank);
Fault dtype(std::string_view field, DType dtype, std::span<const DType> allowed);
// Normalises a negative axis.
Fault axis(std::string_view field, std::int64_t& axis, const Shape& shape);
// Normalises a negative axis.
Fault scope(Scope& scope, const Shape& shape);
// Fills q_min and q_max by the code's dtype and the mode; checks that both are codes.
Fault bounds(DType output, Mode mode, double& q_min, double& q_max);
// Fills scale_dtype: float64 for float64 inputs, float32 otherwise.
Fault scale_dtype(DType input, DType& scale);

}  // namespace planq::checks
