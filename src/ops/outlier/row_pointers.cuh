// Where each row begins in a row-major list of entries: a search for each row.
#pragma once

#include <cstdint>

#include "cuda/launch.cuh"
#include "ops/outlier/coo.h"

namespace planq::outlier {

inline constexpr int kPointerThreads = 256;
// More blocks wait for memory no faster.
inline constexpr int64_t kPointerBlocks = 1 << 16;

struct PointerArgs {
  const std::int32_t* row_index;
  const int64_t* count;
  std::int32_t* pointer;
  int64_t capacity, pointers;
};

static __global__ void __launch_bounds__(kPointerThreads)
    find_rows(const __grid_constant__ PointerArgs args) {
  const int64_t entries = kept_entries(*args.count, args.capacity);
  const auto index = [&](int64_t i) { return args.row_index[i]; };
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kPointerThreads;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kPointerThreads + threadIdx.x;
       row < args.pointers; row += stride)
    args.pointer[row] = static_cast<std::int32_t>(count_below(index, entries, row));
}

inline Status launch_pointers(const PointerArgs& args, Bound& bound) {
  cuda::Grid grid{};
  grid.blocks = std::min(cuda::ceil_div(args.pointers, kPointerThreads), kPointerBlocks);
  grid.threads = dim3(kPointerThreads);
  return cuda::launch(find_rows, grid, args, bound);
}

}  // namespace planq::outlier
