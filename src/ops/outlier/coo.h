// Lists of the entries of a sparse matrix (COO): a row index, a column index and a value each, in
// row-major order, in arrays of `capacity` elements. Their number is in memory, so that no caller
// waits for it. It may exceed `capacity`; then the list has the first `capacity` entries.
#pragma once

#include "core/descriptor.h"
#include "core/host_device.h"
#include "core/status.h"

namespace planq::outlier {

using std::int64_t;

// Indices are int32, and so are positions in a list.
inline constexpr int64_t kMostIndices = (int64_t{1} << 31) - 1;
// The index at positions of the list after the last entry.
inline constexpr std::int32_t kNoIndex = -1;

// How many entries a list of this capacity holds.
PLANQ_HD int64_t kept_entries(int64_t count, int64_t capacity) {
  return count < 0 ? 0 : count < capacity ? count : capacity;
}

// How many of `count` ascending indices, indices(0), indices(1) ..., are below `bound`.
template <class Indices>
PLANQ_HD int64_t count_below(const Indices& indices, int64_t count, int64_t bound) {
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (indices(middle) < bound)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// The sparse matrix has as many rows as a tensor of this shape has: all axes but the last together.
inline int64_t rows_of(const Shape& shape) { return shape.product(0, shape.rank - 1); }

Fault check_threshold(double& threshold);
Fault check_capacity(int64_t capacity);

}  // namespace planq::outlier
