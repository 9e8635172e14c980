// Checks that the descriptors of several families share, with the sentences they answer. A check
// that has a default to offer fills the field in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/descriptor.h"
#include "core/status.h"

namespace planq::checks {

inline constexpr DType kFloats[] = {DType::Float16, DType::BFloat16, DType::Float32,
                                    DType::Float64};

// A number in a message: with as many digits as tell it from the numbers next to it.
std::string number(double value);

// Rank between smallest_rank and 8, no negative extent, at most 2^60 elements.
Fault shape(std::string_view field, const Shape& shape, int smallest_rank);
Fault dtype(std::string_view field, DType dtype, std::span<const DType> allowed);
// Normalises a negative axis.
Fault axis(std::string_view field, std::int64_t& axis, const Shape& shape);
// Codes are made to the nearest, or by a random number.
Fault rounding(Rounding rounding);

}  // namespace planq::checks
