#include "ops/outlier/row_pointers.h"

#include "cuda/launch.cuh"

namespace planq::outlier {
namespace {

constexpr int kPointerThreads = 256;
// More thread blocks would not be faster, since memory latency bounds the kernel.
constexpr int64_t kPointerBlocks = 1 << 16;

__global__ void __launch_bounds__(kPointerThreads)
    find_rows(const __grid_constant__ PointerArgs args) {
  const int64_t entries = kept_entries(*args.count, args.capacity);
  const auto index = [&](int64_t i) { return args.row_index[i]; };
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kPointerThreads;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kPointerThreads + threadIdx.x;
       row < args.pointers; row += stride)
    args.pointer[row] = static_cast<std::int32_t>(count_below(index, entries, row));
}

}  // namespace

Status preload_pointers() { return cuda::preload(find_rows); }

Status launch_pointers(const PointerArgs& args, Bound& bound) {
  cuda::Grid grid{};
  grid.blocks = std::min(cuda::ceil_div(args.pointers, kPointerThreads), kPointerBlocks);
  grid.threads = dim3(kPointerThreads);
  return cuda::launch(find_rows, grid, args, bound);
}

}  // namespace planq::outlier
