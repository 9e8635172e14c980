// percentile_clip on CUDA: the launches of sums_cuda.h, and one block that has a thread for each
// step that is remembered.

#include "cuda/launch.cuh"
#include "ops/statistics/percentile_clip/clip.h"
#include "ops/statistics/sums_cuda.h"

namespace planq::percentile_clip {
namespace {

constexpr int kThreads = 128;
static_assert(kRemembered <= kThreads);

template <class C>
struct ClipArgs {
  Clip<C> clip;
  const C* square_sum;
};

template <class C>
__global__ void __launch_bounds__(kThreads)
    clip_by_history(const __grid_constant__ ClipArgs<C> args) {
  __shared__ math::OrderKey<C> keys[kRemembered];
  const int place = static_cast<int>(threadIdx.x);
  const C sum = *args.square_sum;
  if (place < kRemembered) {
    const C remembered = args.clip.remembered(sum, place);
    args.clip.history[place] = remembered;
    keys[place] = math::order_key(remembered);
  }
  __syncthreads();
  if (place < kRemembered && Clip<C>::rank_of(keys, place) == args.clip.percentile)
    args.clip.store(sum, keys[place]);
}

template <class C>
struct Pieces {
  C *tiles, *square_sum;

  Pieces(const Shape& shape, Scratch& scratch)
      : tiles(cuda::book_tiles<C>(shape, scratch)), square_sum(scratch.take<C>(1)) {}
};

struct Kernels : cuda::SumKernels<Clipping> {
  template <DType kType>
  static std::size_t workspace(const Descriptor& descriptor, const Device&) {
    Scratch counting;
    Pieces<math::Compute<math::Stored<kType>>>(descriptor.as<Fields>().shape, counting);
    return counting.bytes();
  }

  template <DType kType>
  static Status prepare(const Descriptor&, const Device&, State&) {
    using T = math::Stored<kType>;
    PLANQ_TRY(cuda::preload_measure<T>(Measure::SquareSum));
    return cuda::preload(clip_by_history<math::Compute<T>>);
  }

  template <DType kType>
  static Status bind(const Call& call, Bound& bound) {
    using T = math::Stored<kType>;
    using C = math::Compute<T>;
    const Shape& shape = call.fields<Fields>().shape;
    Scratch scratch(call.workspace);
    const Pieces<C> pieces(shape, scratch);
    PLANQ_TRY(cuda::launch_measure<T>({Measure::SquareSum}, call.device, call.operands[kInput],
                                      shape, pieces.tiles, pieces.square_sum, bound));
    const ClipArgs<C> args = {Clip<C>(call), pieces.square_sum};
    return cuda::launch(clip_by_history<C>, {.threads = dim3(kThreads)}, args, bound);
  }
};

constexpr auto kKernels = sum_kernels<Kernels>();

}  // namespace
}  // namespace planq::percentile_clip

PLANQ_KERNELS(percentile_clip, cuda, kKernels);
