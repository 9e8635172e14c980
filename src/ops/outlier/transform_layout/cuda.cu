// transform_layout on CUDA: tiles on their way through shared memory.

#include <algorithm>
#include <cstdint>

#include "cuda/launch.cuh"
#include "ops/outlier/transform_layout/tiles.cuh"

namespace planq::transform_layout {

namespace {

using std::int64_t;

// A grid has fewer than 2^31 blocks; its blocks go on from tile to tile.
constexpr int64_t kMostBlocks = 1 << 30;

template <class E, bool kTurned>
__global__ void __launch_bounds__(kThreads, kBlocks)
    transform_tiles(const __grid_constant__ Args<E> args) {
  __shared__ std::uint32_t tile[kTileWords];
  for (int64_t i = blockIdx.x; i < args.tiles; i += gridDim.x) {
    const int64_t down = i / args.across;
    const int64_t row = down * Tile<E>::kSide, column = (i - down * args.across) * Tile<E>::kSide;
    by_layout(args.input.lines.layout, [&](auto layout) {
      std::uint32_t words[kWordsOfThread];
      load_tile<E, layout.value, kTurned>(args.input, row, column, threadIdx.x, words);
      put_tile<E, layout.value, kTurned>(words, threadIdx.x, tile);
    });
    __syncthreads();
    by_layout(args.output.lines.layout, [&](auto layout) {
      store_tile<E, layout.value>(args.output, row, column, threadIdx.x, tile);
    });
    __syncthreads();
  }
}

// Whether every line begins where a word does.
template <class E>
bool has_words(const void* data, const MatrixLines& lines) {
  bool result = cuda::aligned_to(data, 4);
  for (int i = 0; i < lines.lines.rank; ++i)
    result = result && lines.lines.axes[i].stride[0] * static_cast<int64_t>(sizeof(E)) % 4 == 0;
  return result;
}

std::size_t no_workspace(const Descriptor&, const Device&) { return 0; }

template <class E>
Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY((cuda::preload(transform_tiles<E, false>)));
  return cuda::preload(transform_tiles<E, true>);
}

template <class E>
Status bind(const Call& call, Bound& bound) {
  const Frame frame(call.fields<Fields>(), call.operands);
  const void* input = call.operands[kInput].data;
  void* output = call.operands[kOutput].data;
  Args<E> args;
  args.input = {static_cast<const E*>(input), frame.input, has_words<E>(input, frame.input)};
  args.output = {static_cast<E*>(output), frame.output, has_words<E>(output, frame.output)};
  args.across = cuda::ceil_div(frame.output.held_columns(), Tile<E>::kSide);
  args.tiles = args.across * cuda::ceil_div(frame.output.held_rows(), Tile<E>::kSide);
  if (args.tiles == 0) return Status::success();
  const cuda::Grid grid{std::min(args.tiles, kMostBlocks), kThreads};
  return frame.turned ? cuda::launch(transform_tiles<E, true>, grid, args, bound)
                      : cuda::launch(transform_tiles<E, false>, grid, args, bound);
}

template <DType kDType, class E>
constexpr Kernel make_kernel() {
  return {.op = "transform_layout",
          .method = "tiles",
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
