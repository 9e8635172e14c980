// What the launches of optimizer_step on CUDA are given.
#pragma once

#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "ops/optimizer/optimizer_step/step.h"

namespace planq::optimizer_step::cuda {

using planq::cuda::kWarp;
using std::int64_t;

// Elements that a lane has side by side, and how many such quads it has in a tile.
inline constexpr int kQuad = 4, kQuads = 2;
inline constexpr int kQuadStride = kWarp * kQuad, kWarpTile = kQuads * kQuadStride;
// A tile is a block's, and holds whole blocks of states: the largest take twice the threads.
inline constexpr int kThreads = 256, kMostThreads = 512, kMostWarps = kMostThreads / kWarp;

struct Member {
  Tensor tensor;
  int64_t elements;
  std::int32_t first_tile, first_leaf;  // numbered from the first of the launch on, of all
  std::uint32_t id;
  bool is_aligned;  // every tensor to quads
};

// What passes leave for one another, by member of the list, and by leaf of its tensors.
struct Memory {
  float *parameter_sums, *update_sums;
  std::uint32_t* maxima;  // bits of magnitudes, kMostStates each
  Trust* trust;
};

// As many tensors as there is room for in the parameters of a launch.
inline constexpr int kMostMembers = 300;

struct StepArgs {
  Rule rule;
  Sources sources;
  Factors factors;  // where nothing is in memory
  Memory memory;
  IntegerScalar seed, offset;
  const float* codebooks[kMostStates];
  DType parameter_dtype, gradient_dtype;
  bool reads, draws;
  std::int32_t block_shift, members, first_member, tiles;
  Member member[kMostMembers];
};
static_assert(sizeof(StepArgs) <= 32764, "the most that a launch takes");

__device__ __forceinline__ Factors factors_in(const StepArgs& args) {
  return args.reads ? optimizer::factors_of(args.rule, args.sources) : args.factors;
}

// ---- launches of a thread a tensor or so, in finish.cu -----------------------------------------

// Loads their kernels.
Status prepare_finish();
// Trust ratios and the norms that are told, out of the sums of leaves.
Status finish_norms(const StepArgs& args, Bound& bound);
// The norms of updates alone, which lars tells after the last pass.
Status tell_update_norms(const StepArgs& args, Bound& bound);
Status store_maxima(const StepArgs& args, Bound& bound);
// Counts a step that is not skipped.
Status count_step(const Sources& sources, std::int64_t* step, Bound& bound);

}  // namespace planq::optimizer_step::cuda
