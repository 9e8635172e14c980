// The launches of optimizer_step between and behind its passes: what is known of whole tensors.
#include "cuda/tree_sum.cuh"
#include "ops/codebook/arithmetic.h"
#include "ops/optimizer/optimizer_step/args.cuh"

namespace planq::optimizer_step::cuda {
namespace {

using planq::cuda::ceil_div;
using planq::cuda::launch;

// A tensor has one block for its sums, however large it is.
constexpr int kFinishThreads = 1024;
constexpr int kLanesOfRun = math::kSumLeaf / kWarp;
static_assert(kLanesOfRun == kWarp, "a lane keeps one sum of a run");

__device__ __forceinline__ float lane_sum(float x) {
  return planq::cuda::join_lanes(x, planq::cuda::AddNeighbours{});
}

// The sum of up to kSumLeaf numbers, filled up with +0, by a warp, with several loads on their way.
__device__ __forceinline__ float run_sum(const float* numbers, int64_t count, int64_t stride) {
  constexpr int kTogether = 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float own = 0;
  for (int first = 0; first < kWarp && first * kWarp < count; first += kTogether) {
    float parts[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = (first + i) * kWarp + lane;
      parts[i] = at < count ? numbers[at * stride] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const float sum = lane_sum(parts[i]);
      own = lane == first + i ? sum : own;
    }
  }
  return lane_sum(own);
}

// The sum of leaves in the order of math/tree_sum.h, by a block, in their place: the sum of a run
// takes the place of its first number, where only the run's own warp reads.
__device__ __forceinline__ float tree_sum(float* leaves, int64_t count) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int64_t stride = 1; count > 1; stride *= math::kSumLeaf) {
    const int64_t runs = (count + math::kSumLeaf - 1) / math::kSumLeaf;
    for (int64_t run = warp; run < runs; run += kFinishThreads / kWarp) {
      float* const first = leaves + run * math::kSumLeaf * stride;
      const int64_t left = count - run * math::kSumLeaf;
      const float sum = run_sum(first, left < math::kSumLeaf ? left : math::kSumLeaf, stride);
      __syncwarp();
      if (threadIdx.x % kWarp == 0) *first = sum;
    }
    count = runs;
    __syncthreads();
  }
  return count > 0 ? leaves[0] : 0.0f;
}

__device__ __forceinline__ float norm_of(float* leaves, const Member& member) {
  const int64_t count = (member.elements + math::kSumLeaf - 1) / math::kSumLeaf;
  return optimizer::root(tree_sum(leaves + member.first_leaf, count));
}
__device__ __forceinline__ void tell(const Member& member, float norm) {
  if (member.tensor.update_norm) *member.tensor.update_norm = math::narrow<float>(norm);
}

// A block a tensor.
__global__ void __launch_bounds__(kFinishThreads) norms(const __grid_constant__ StepArgs args) {
  const Member& member = args.member[blockIdx.x];
  const Factors factors = factors_in(args);
  if (factors.skips) {
    if (threadIdx.x == 0) tell(member, 0);
    return;
  }
  optimizer::Norms found;
  found.parameter = norm_of(args.memory.parameter_sums, member);
  found.other = norm_of(args.memory.update_sums, member);
  if (threadIdx.x != 0) return;
  args.memory.trust[args.first_member + blockIdx.x] =
      optimizer::trust_of(args.rule, factors, found);
  tell(member, optimizer::told_norm(args.rule, factors, found));
}

__global__ void __launch_bounds__(kFinishThreads)
    update_norms(const __grid_constant__ StepArgs args) {
  const Member& member = args.member[blockIdx.x];
  if (factors_in(args).skips) return;  // told before
  const float norm = norm_of(args.memory.update_sums, member);
  if (threadIdx.x == 0) tell(member, norm);
}

// A thread a tensor.
constexpr int kMaximaThreads = 256;
__global__ void __launch_bounds__(kMaximaThreads) maxima(const __grid_constant__ StepArgs args) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index >= args.members || factors_in(args).skips) return;
  const Member& member = args.member[index];
  const std::uint32_t* const found = args.memory.maxima + kMostStates * (args.first_member + index);
  for (int k = 0; k < args.rule.states && member.elements > 0; ++k)
    *member.tensor.absmax[k] = math::stored_absmax(__uint_as_float(found[k]));
}

struct CountArgs {
  RealScalar found_nonfinite;
  std::int64_t* step;
};
__global__ void count(CountArgs args) {
  if (args.found_nonfinite.get() == 0) *args.step += 1;
}

}  // namespace

Status prepare_finish() {
  PLANQ_TRY(planq::cuda::preload(norms));
  PLANQ_TRY(planq::cuda::preload(update_norms));
  PLANQ_TRY(planq::cuda::preload(maxima));
  return planq::cuda::preload(count);
}

Status finish_norms(const StepArgs& args, Bound& bound) {
  return launch(norms, {args.members, dim3(kFinishThreads)}, args, bound);
}
Status tell_update_norms(const StepArgs& args, Bound& bound) {
  return launch(update_norms, {args.members, dim3(kFinishThreads)}, args, bound);
}
Status store_maxima(const StepArgs& args, Bound& bound) {
  return launch(maxima, {ceil_div(args.members, kMaximaThreads), dim3(kMaximaThreads)}, args,
                bound);
}
Status count_step(const Sources& sources, std::int64_t* step, Bound& bound) {
  return launch(count, {}, CountArgs{sources.found_nonfinite, step}, bound);
}

}  // namespace planq::optimizer_step::cuda
