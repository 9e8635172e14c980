#include "core/checks.h"

#include <cstdio>
#include <string>

namespace planq::checks {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

Fault shape(std::string_view field, const Shape& shape, int smallest_rank) {
  if (shape.rank < smallest_rank || shape.rank > kMaxRank)
    return {std::string(field), "expected " + std::to_string(smallest_rank) + " to " +
                                    std::to_string(kMaxRank) + " axes, got " +
                                    std::to_string(shape.rank)};
  std::int64_t count = 1;
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (shape[axis] < 0)
      return {std::string(field),
              "axis " + std::to_string(axis) + " is negative: " + std::to_string(shape[axis])};
    // Extents of 0 must not hide an overflow among the other axes: strides are products too.
    const std::int64_t extent = shape[axis] > 1 ? shape[axis] : 1;
    if (extent > (std::int64_t{1} << 60) / count)
      return {std::string(field), "more than 2^60 elements"};
    count *= extent;
  }
  return {};
}

Fault dtype(std::string_view field, DType dtype, std::span<const DType> allowed) {
  std::string names;
  for (const DType candidate : allowed) {
    if (candidate == dtype) return {};
    names += (names.empty() ? "" : ", ") + std::string(name_of(candidate));
  }
  return {std::string(field), "expected one of " + names + ", got " + std::string(name_of(dtype))};
}

Fault axis(std::string_view field, std::int64_t& axis, const Shape& shape) {
  if (axis < -shape.rank || axis >= shape.rank)
    return {std::string(field), "axis " + std::to_string(axis) + " is outside a shape of rank " +
                                    std::to_string(shape.rank)};
  if (axis < 0) axis += shape.rank;
  return {};
}

Fault rounding(Rounding rounding) {
  if (rounding != Rounding::None) return {};
  return {"rounding", "expected nearest_even or stochastic, got none"};
}

}  // namespace planq::checks
