// transform_layout on CUDA: tiles of 16-byte vectors. They go through shared memory if the vectors
// of input and output hold different elements.

#include <algorithm>
#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/lines.cuh"
#include "ops/outlier/transform_layout/tiles.cuh"

namespace planq::transform_layout {

namespace {

using std::int64_t;

// A grid has fewer than 2^31 thread blocks; each loops over tiles.
constexpr int64_t kMostBlocks = 1 << 30;

// Thread blocks per multiprocessor: the fastest of the numbers that cause no register spills.
template <class E>
constexpr int kCopyBlocks = sizeof(E) == 4 ? 6 : 5;
template <class E>
constexpr int kAlignedBlocks = sizeof(E) == 4 ? 5 : 6;
constexpr int kTurnBlocks = 8;
constexpr int kUnalignedBlocks = 3;

// Tiles are processed in the order of the output's memory: down its panels, or across its rows.
template <class E>
struct LaunchArgs {
  Args<E> of;
  bool downwards;
  cuda::LineDivider line;  // tiles that follow one another

  // Calls use(row, column) for the tiles of a block.
  template <class Use>
  __device__ __forceinline__ void each_tile(const Use& use) const {
    // The round is the only loop variable, to save registers.
#pragma unroll 1
    for (std::uint32_t round = 0;; ++round) {
      const int64_t i = int64_t{round} * gridDim.x + blockIdx.x;
      if (i >= of.tiles) return;
      const int64_t major = line.quotient(i), minor = i - major * line.divisor;
      use((downwards ? minor : major) * kTileRows, (downwards ? major : minor) * kTileColumns<E>);
    }
  }
};

// kFrom, kTo: whether the vectors of the input or the output are aligned and whole.
template <class E, bool kTurned, bool kFrom, bool kTo>
__global__ void __launch_bounds__(kThreads, kFrom&& kTo ? kAlignedBlocks<E> : kUnalignedBlocks)
    transform_tiles(const __grid_constant__ LaunchArgs<E> args) {
  __shared__ alignas(16) std::uint32_t tile[kTileWords];
  args.each_tile([&](int64_t row, int64_t column) {
    by_layout(args.of.input.lines.layout, [&](auto layout) {
      Vector vectors[kVectors];
      load_tile<E, layout.value, kTurned, kFrom>(args.of.input, row, column, threadIdx.x, vectors);
      put_tile<E, layout.value, kTurned>(vectors, threadIdx.x, tile);
    });
    __syncthreads();
    by_layout(args.of.output.lines.layout, [&](auto layout) {
      store_tile<E, layout.value, kTo>(args.of.output, row, column, threadIdx.x, tile);
    });
    __syncthreads();
  });
}

// Layouts whose vectors are pieces of rows.
template <class E, class Use>
__device__ __forceinline__ void by_rows_layout(Layout layout, const Use& use) {
  by_layout(layout, [&](auto each) {
    if constexpr (!kStacked<E, each.value>) use(each);
  });
}

template <class E>
__global__ void __launch_bounds__(kThreads, kCopyBlocks<E>)
    copy_tiles(const __grid_constant__ LaunchArgs<E> args) {
  args.each_tile([&](int64_t row, int64_t column) {
    by_rows_layout<E>(args.of.output.lines.layout, [&](auto to) {
      by_rows_layout<E>(args.of.input.lines.layout, [&](auto from) {
        copy_tile<E, from.value, to.value>(args.of, row, column, threadIdx.x);
      });
    });
  });
}

template <class E>
__global__ void __launch_bounds__(kThreads, cuda::fitting_blocks(kThreads, kTurnBlocks))
    turn_tiles_to_stacks(const __grid_constant__ LaunchArgs<E> args) {
  args.each_tile([&](int64_t row, int64_t column) {
    by_rows_layout<E>(args.of.input.lines.layout, [&](auto from) {
      turn_tile_to_stacks<E, from.value>(args.of, row, column, threadIdx.x);
    });
  });
}

template <class E>
using Transform = void (*)(LaunchArgs<E>);

template <class E, bool kTurned>
Transform<E> transform_of(bool from, bool to) {
  if (from)
    return to ? transform_tiles<E, kTurned, true, true> : transform_tiles<E, kTurned, true, false>;
  return to ? transform_tiles<E, kTurned, false, true> : transform_tiles<E, kTurned, false, false>;
}

template <class E>
Status prepare(const Descriptor&, const Device&, State&) {
  for (const bool from : {false, true})
    for (const bool to : {false, true}) {
      PLANQ_TRY((cuda::preload(transform_of<E, false>(from, to))));
      PLANQ_TRY((cuda::preload(transform_of<E, true>(from, to))));
    }
  if constexpr (sizeof(E) == 1) PLANQ_TRY(cuda::preload(turn_tiles_to_stacks<E>));
  return cuda::preload(copy_tiles<E>);
}

template <class E>
Status bind(const Call& call, Bound& bound) {
  const Frame frame(call.fields<Fields>(), call.operands);
  LaunchArgs<E> args;
  Args<E>& of = args.of;
  of.input = side_of(static_cast<const E*>(call.operands[kInput].data), frame.input);
  of.output = side_of(static_cast<E*>(call.operands[kOutput].data), frame.output);
  const int64_t across = cuda::ceil_div(frame.output.held_columns(), kTileColumns<E>);
  const int64_t down = cuda::ceil_div(frame.output.held_rows(), kTileRows);
  of.tiles = across * down;
  if (of.tiles == 0) return Status::success();
  args.downwards = outlier::has_panels(frame.output.layout);
  args.line = cuda::LineDivider(args.downwards ? down : across, of.tiles);
  const cuda::Grid grid{std::min(of.tiles, kMostBlocks), kThreads};
  const bool from = of.input.vectors, to = of.output.vectors;
  if (is_copy(of, frame.turned)) return cuda::launch(copy_tiles<E>, grid, args, bound);
  if constexpr (sizeof(E) == 1)
    if (is_turned_to_stacks(of, frame.turned))
      return cuda::launch(turn_tiles_to_stacks<E>, grid, args, bound);
  return cuda::launch(
      frame.turned ? transform_of<E, true>(from, to) : transform_of<E, false>(from, to), grid, args,
      bound);
}

template <DType kDType, class E>
constexpr Kernel make_kernel() {
  return {.op = "transform_layout",
          .body = "tiles",
          .dtypes = kDTypes<kDType>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kDType>,
          .workspace = no_workspace,
          .prepare = prepare<E>,
          .bind = bind<E>};
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Int8, std::uint8_t>(),
    make_kernel<DType::Int32, std::uint32_t>(),
};

}  // namespace
}  // namespace planq::transform_layout

PLANQ_KERNELS(transform_layout, cuda, kKernels);
