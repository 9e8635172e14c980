// What the launches of optimizer_step on CUDA are given.
#pragma once

#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "ops/optimizer/optimizer_step/step.h"

namespace planq::optimizer_step::cuda {

using planq::cuda::kWarp;
using std::int64_t;

// Elements of a lane in a tile. Quads of them stay together.
inline constexpr int kEach = 8, kQuad = 4, kWarpTile = kWarp * kEach;
inline constexpr unsigned kAllElements = (1u << kEach) - 1;
// A tile is a block's, and holds whole blocks of states. With codes, blocks of threads are large,
// since each has the maps in its memory.
template <StateFormat kFormat>
inline constexpr int kThreads = kFormat == StateFormat::Float32 ? 256 : 512;
inline constexpr int kMostWarps = 512 / kWarp;
// How many of them the registers of a multiprocessor have to hold.
template <StateFormat kFormat>
inline constexpr int kBlocks = kFormat == StateFormat::Float32 ? 3 : 2;

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
  // The type of parameters and gradients, where there are no master copies or centered averages,
  // all elements are updated, updates are not bounded, and rounding is to nearest; else none.
  DType plain;
  std::int32_t block_shift, members, first_member, tiles;
  Member member[kMostMembers];
};
static_assert(sizeof(StepArgs) <= 32764, "the most that a launch takes");

__device__ __forceinline__ Factors factors_in(const StepArgs& args) {
  return args.reads ? optimizer::factors_of(args.rule, args.sources) : args.factors;
}

// ---- launches with a thread or a block for each tensor, in finish.cu ---------------------------

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
