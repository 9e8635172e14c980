// How thread blocks share rows: a row has some lanes of a block, a warp's at least, and where rows
// are few and long, those of several blocks, its slices.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/device.h"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"

namespace planq::cuda {

struct RowShare {
  static constexpr int kThreads = 256;
  static constexpr int kRows = kThreads / kWarp;  // the most of a block

  std::int64_t rows, units;  // units: what a row is cut into
  int lanes, slices;

  // `each`: the units that a thread takes at a time.
  RowShare(std::int64_t row_count, std::int64_t row_units, int each, const Device& device)
      : rows(row_count), units(row_units) {
    const std::int64_t wanted = ceil_div(units, each);
    lanes = static_cast<int>(
        power_of_two(std::clamp<std::int64_t>(wanted, kWarp, std::int64_t{kThreads})));
    // Blocks beyond those that run at the same time would gain nothing.
    const std::int64_t some =
        2 * std::int64_t{device.multiprocessors} / std::max<std::int64_t>(rows, 1);
    slices = static_cast<int>(std::max<std::int64_t>(std::min(some, ceil_div(units, kThreads)), 1));
  }
  Grid grid() const {
    const std::int64_t groups = ceil_div(rows, kThreads / lanes);
    return {.blocks = std::max<std::int64_t>(groups, 1) * slices, .threads = dim3(kThreads)};
  }

  __device__ __forceinline__ int rows_of_block() const { return kThreads / lanes; }
  __device__ __forceinline__ std::int64_t first_row() const {
    return std::int64_t{blockIdx.x / slices} * rows_of_block();
  }
  // Among the rows of its block, the one that this thread has a part in.
  __device__ __forceinline__ int own_row() const { return static_cast<int>(threadIdx.x) / lanes; }
  __device__ __forceinline__ int slice() const { return static_cast<int>(blockIdx.x % slices); }
  // The first unit of this thread, and the step to its next one.
  __device__ __forceinline__ std::int64_t first_unit() const {
    return slice() * lanes + static_cast<int>(threadIdx.x) % lanes;
  }
  __device__ __forceinline__ std::int64_t step() const { return std::int64_t{slices} * lanes; }
};

}  // namespace planq::cuda
