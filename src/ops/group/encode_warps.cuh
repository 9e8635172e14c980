// Elements to codes of groups by warps that have many vectors in their registers: groups of a power
// of two of vectors, whole and one after another.
#pragma once

#include "cuda/divider.cuh"
#include "cuda/vectors.cuh"
#include "ops/group/group.cuh"

namespace planq::cuda {

inline constexpr int kWarpSets = 8;  // vectors of a lane

// GroupOrder::place() of fewer than 2^31 groups.
struct GroupPlaces {
  std::uint32_t run = 0, nodes = 1;
  Divider by_run, slices, devices;

  GroupPlaces() = default;
  explicit GroupPlaces(const GroupOrder& order)
      : run(static_cast<std::uint32_t>(order.run)),
        nodes(static_cast<std::uint32_t>(order.nodes)),
        by_run(std::max(run, 1u)),
        slices(static_cast<std::uint32_t>(order.slices)),
        devices(static_cast<std::uint32_t>(order.devices)) {}

  __device__ __forceinline__ std::uint32_t operator[](std::uint32_t group) const {
    if (run == 0) return group;
    const std::uint32_t runs = by_run.quotient(group), partition = slices.quotient(runs);
    const std::uint32_t slice = runs - partition * slices.divisor;
    const std::uint32_t node = devices.quotient(partition);
    const std::uint32_t device = partition - node * devices.divisor;
    return ((slice * devices.divisor + device) * nodes + node) * run + (group - runs * run);
  }
};

template <class T>
struct GroupWarpArgs {
  const T* input;
  std::uint8_t* output;
  GroupMemory<T> parameters;
  GroupPlaces places;
  std::uint32_t vectors;
  // Of a group: its vectors, as lanes of a set of a warp, sets, and warps.
  int vectors_log2, lanes_log2, sets, warps;
  math::GroupSpec spec;
  bool measured;
};

// The range of the group that lane r of a set stands for: that of set r % kWarpSets.
template <class T>
__device__ __forceinline__ math::GroupRange warp_group_range(const GroupWarpArgs<T>& args,
                                                             const uint4 (&v)[kWarpSets],
                                                             int lane) {
  const int lanes = 1 << args.lanes_log2;
  math::GroupRange range;
  if constexpr (sizeof(T) == 2) {
    const auto larger = [](std::uint32_t a, std::uint32_t b) { return pair_max<T>(a, b); };
    std::uint32_t pairs[kWarpSets];
#pragma unroll
    for (int k = 0; k < kWarpSets; ++k) {
      const uint4 one[1] = {v[k]};
      pairs[k] = pair_extremes<T>(one);
    }
    std::uint32_t pair = scattered(pairs, lane, lanes, larger);
    for (int bit = 1; bit < args.sets; bit <<= 1)
      pair = larger(pair, __shfl_xor_sync(kAllLanes, pair, bit));
    range = {-of_pair<T>(pair, 1), of_pair<T>(pair, 0)};
  } else {
    const auto larger = [](float a, float b) { return math::larger(a, b); };
    const auto smaller = [](float a, float b) { return math::smaller(a, b); };
    float lows[kWarpSets], highs[kWarpSets];
#pragma unroll
    for (int k = 0; k < kWarpSets; ++k) {
      float values[kGroupVector<T>];
      widen_group_vector<T>(v[k], values);
      math::GroupRange of_vector;
#pragma unroll
      for (int j = 0; j < kGroupVector<T>; ++j) of_vector.add(values[j]);
      lows[k] = of_vector.low;
      highs[k] = of_vector.high;
    }
    range = {scattered(lows, lane, lanes, smaller), scattered(highs, lane, lanes, larger)};
    for (int bit = 1; bit < args.sets; bit <<= 1)
      range.add(math::GroupRange{__shfl_xor_sync(kAllLanes, range.low, bit),
                                 __shfl_xor_sync(kAllLanes, range.high, bit)});
  }
  if (args.warps == 1) return range;
  __shared__ float lows[kTeamThreads / kWarp], highs[kTeamThreads / kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (lane == 0) lows[warp] = range.low, highs[warp] = range.high;
  __syncthreads();
  for (int i = 1; i < args.warps; ++i) range.add(math::GroupRange{lows[warp ^ i], highs[warp ^ i]});
  return range;
}

// kWarpSets sets of 32 consecutive vectors a warp. A lane stands for one group while the scales are
// worked out, and for a vector of each set before and after that.
template <class T, bool kIntx, bool kNibble>
__global__ void __launch_bounds__(kTeamThreads, kIntx ? 1 : 4)
    encode_warps(const __grid_constant__ GroupWarpArgs<T> args) {
  using Codes = GroupWord<T, kNibble>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, lanes = 1 << args.lanes_log2;
  const std::uint32_t begin = (blockIdx.x * (kTeamThreads / kWarp) + threadIdx.x / kWarp) *
                              static_cast<std::uint32_t>(kWarpSets * kWarp);
  const std::uint32_t first = begin + lane;
  const bool full = begin + kWarpSets * kWarp <= args.vectors;
  const auto* from = reinterpret_cast<const uint4*>(args.input);
  uint4 v[kWarpSets];
  if (full) {
#pragma unroll
    for (int k = 0; k < kWarpSets; ++k) v[k] = load_once(from + first + k * kWarp);
  } else {
    // Vectors beyond the last repeat it; nothing of them is stored.
#pragma unroll
    for (int k = 0; k < kWarpSets; ++k)
      v[k] = load_once(from + min(first + k * kWarp, args.vectors - 1));
  }

  const int rank = lane & (lanes - 1), own = lane & (kWarpSets - 1);
  const std::uint32_t vector = begin + own * kWarp + (lane - rank);
  const std::uint32_t place = args.places[vector >> args.vectors_log2];
  math::GroupScale scale;
  if (args.measured) {
    scale = math::measured_scale<T>(args.spec, warp_group_range(args, v, lane));
    const bool leads = (vector & ((1u << args.vectors_log2) - 1)) == 0;
    if (leads && rank < kWarpSets && vector < args.vectors)
      store_pair(args.parameters, args.spec.form, place, scale);
  } else if (vector < args.vectors) {
    scale = math::given_scale(args.spec, load_pair(args.parameters, args.spec.form, place));
  }

  auto* to = reinterpret_cast<Codes*>(args.output);
#pragma unroll
  for (int k = 0; k < kWarpSets; ++k) {
    const math::GroupScale of_set = {__shfl_sync(kAllLanes, scale.factor, k, lanes),
                                     __shfl_sync(kAllLanes, scale.offset, k, lanes), 0.0f};
    const std::uint32_t at = first + k * kWarp, group = __shfl_sync(kAllLanes, place, k, lanes);
    float values[kGroupVector<T>];
    widen_group_vector<T>(v[k], values);
    const Codes codes = encode_group_vector<T, kIntx, kNibble>(of_set, values);
    if (full || at < args.vectors)
      store_once(to + (group << args.vectors_log2 | (at & ((1u << args.vectors_log2) - 1))), codes);
  }
}

}  // namespace planq::cuda
