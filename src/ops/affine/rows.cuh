// Segments that stay in registers: read once, reduced, quantized and written.
//
// quantize_lanes: one vector of a segment per lane, so a segment has 1 to 32 lanes; each warp works
// on kSets runs of segments at a time. quantize_rows: a segment has a team, which is a warp or else
// a block or a cluster of blocks, and every thread kVectors vectors of it.
//
// These bodies take any alignment, strides and length; aligned_rows.cuh has those for regular
// segments.
#pragma once

#include "cuda/launch.cuh"
#include "ops/affine/segments.cuh"

namespace planq::affine {

inline constexpr int kLaneThreads = 128;

template <class In>
struct LaneArgs {
  SegmentArgs<In> segments;
  int lanes_log2;  // a segment's lanes: a power of two, and with edges at least 2 * kPerVector
};

template <class In>
struct RowArgs {
  SegmentArgs<In> segments;
  int cluster;  // blocks of a segment
};

template <class In, int kCount>
__device__ __forceinline__ Extent<In> extent_of(const uint4 (&v)[kCount],
                                                const bool (&active)[kCount], bool symmetric) {
  Collector<In> collector;
  if (symmetric) {
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      if (active[k]) collector.add_magnitudes(v[k]);
  } else {
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      if (active[k]) collector.add_ordered(v[k]);
  }
  return collector.extent();
}

// --- Lanes -------------------------------------------------------------------------------------

// Where a lane stands: its set of lanes works on segments first, first + step, ...
struct LanePlace {
  int rank, width, step;
  std::uint32_t first;

  __device__ __forceinline__ LanePlace(int lanes_log2, int sets) {
    const int lane = threadIdx.x % cuda::kWarp;
    width = 1 << lanes_log2;
    rank = lane & (width - 1);
    step = cuda::kWarp >> lanes_log2;
    const std::uint32_t warp =
        blockIdx.x * (kLaneThreads / cuda::kWarp) + threadIdx.x / cuda::kWarp;
    first = warp * sets * step + (lane >> lanes_log2);
  }
};

// The range of this lane's own segment over its finite elements.
template <class In, int kSets>
__device__ __forceinline__ Extent<In> finite_lanes(const SegmentArgs<In>& args,
                                                   const LanePlace& place, int own) {
  const bool symmetric = args.recipe.mode == Mode::Symmetric;
  Extent<In> mine;
#pragma unroll 1
  for (int k = 0; k < kSets; ++k) {
    const std::uint32_t index = place.first + k * place.step;
    Extent<In> extent;
    if (index < args.count) {
      const Segment<In> segment(args, index);
      extent = walk_finite(segment.input, segment.length, place.rank, place.width, symmetric);
    }
    extent = lanes_extent(extent, place.width, symmetric);
    if (k == own) mine = extent;
  }
  return mine;
}

// The parameters that lane `owner` of this set holds.
template <class C>
__device__ __forceinline__ math::SegmentParameters<C> from_lane(
    const math::SegmentParameters<C>& mine, int owner, int width, bool symmetric) {
  math::SegmentParameters<C> result{};
  result.scale = __shfl_sync(cuda::kAllLanes, mine.scale, owner, width);
  result.inverse = __shfl_sync(cuda::kAllLanes, mine.inverse, owner, width);
  if (!symmetric) result.zero_point = __shfl_sync(cuda::kAllLanes, mine.zero_point, owner, width);
  return result;
}

template <class In, Codes kCodes, int kSets>
__global__ void __launch_bounds__(kLaneThreads)
    quantize_lanes(const __grid_constant__ LaneArgs<In> lane_args) {
  using C = Compute<In>;
  const SegmentArgs<In>& args = lane_args.segments;
  const bool symmetric = args.recipe.mode == Mode::Symmetric;
  const LanePlace place(lane_args.lanes_log2, kSets);

  uint4 v[kSets];
  In edges[kSets];
  bool active[kSets], edge[kSets];
  bool regular = true;
#pragma unroll
  for (int k = 0; k < kSets; ++k) {
    const std::uint32_t index = place.first + k * place.step;
    const bool exists = index < args.count;
    const Segment<In> segment(args, index);
    v[k] = make_uint4(0, 0, 0, 0);
    edge[k] = false;
    const Run<In, kCodes> run(segment.input, segment.output, segment.length);
    active[k] = exists && place.rank < run.vectors;
    edge[k] = exists && run.has_edge(place.rank);
    regular = regular && (run.whole || !exists);
    if (active[k]) v[k] = cuda::load_once(run.input + place.rank * kPerVector<In>);
    if (edge[k]) edges[k] = *run.edge(place.rank);
  }

  // Lane k of a set goes on with the set's segment k, so that parameters are worked out side by
  // side.
  const int own = place.rank & (kSets - 1);
  Extent<In> mine;
#pragma unroll
  for (int k = 0; k < kSets; ++k) {
    Collector<In> collector;
    if (active[k]) symmetric ? collector.add_magnitudes(v[k]) : collector.add_ordered(v[k]);
    Extent<In> extent = collector.extent();
    if (edge[k]) extent.add(key_of(edges[k], symmetric));
    extent = lanes_extent(extent, place.width, symmetric);
    if (own == k) mine = extent;
  }
  const bool special = mine.special();
  if (args.recipe.nonfinite == NonFinite::Saturate && __any_sync(cuda::kAllLanes, special))
    mine = finite_lanes<In, kSets>(args, place, own);

  const math::Range<C> range = range_of(mine, symmetric, special);
  const math::SegmentParameters<C> parameters = math::segment_parameters(args.recipe, range);
  const std::uint32_t own_index = place.first + own * place.step;
  const bool owns = own_index < args.count;
  if (owns && place.rank < kSets) store_parameters(args, Segment<In>(args, own_index), parameters);
  const bool fast = regular && (!owns || is_fast(args.recipe, parameters, range));

  if (!__all_sync(cuda::kAllLanes, fast)) {
#pragma unroll 1
    for (int k = 0; k < kSets; ++k) {
      math::SegmentParameters<C> theirs = from_lane(parameters, k, place.width, symmetric);
      theirs.poisoned = __shfl_sync(cuda::kAllLanes, parameters.poisoned, k, place.width);
      const std::uint32_t index = place.first + k * place.step;
      if (index >= args.count) continue;
      const Segment<In> segment(args, index);
      walk_codes<In, kCodes>(segment.input, segment.output, segment.length, args.recipe, theirs,
                             args.order, place.rank, place.width);
    }
    return;
  }
  by_rule(args.recipe.quotient, [&](auto divide) {
#pragma unroll
    for (int k = 0; k < kSets; ++k) {
      constexpr int kBytes = kWordBytes<In, kCodes>;
      const auto theirs = from_lane(parameters, k, place.width, symmetric);
      const Segment<In> segment(args, place.first + k * place.step);
      const Numbers<C> numbers(theirs, args.recipe);
      const auto word = encode<In, kCodes, true, divide.value, Bounds::Clamp>(
          v[k], numbers, args.recipe, args.order);
      const Run<In, kCodes> run(segment.input, segment.output, segment.length);
      const bool exists = place.first + k * place.step < args.count;
      const auto last = exists ? static_cast<int>(run.vectors) - 1 : -1;
      cuda::store_shifted<kBytes>(run.output + place.rank * kBytes, word, run.shift, place.rank,
                                  last, place.width);
      std::uint8_t code = 0;
      if (edge[k]) code = math::code_of(math::widen(edges[k]), args.recipe, theirs);
      run.store_edge(place.rank, edge[k], code, args.order);
    }
  });
}

// --- A warp, a block or a cluster --------------------------------------------------------------

enum class Team { Warp, Block };

inline constexpr int kRowThreads = 512;
inline constexpr int kWideRowThreads = 768;  // of the shape with one vector a thread
inline constexpr int kMaxClusterWarps = 8 * kRowThreads / cuda::kWarp;

// The same number, as one that the compiler does not know: what is computed from it is computed
// again instead of occupying registers meanwhile.
__device__ __forceinline__ std::uint32_t again(std::uint32_t number) {
  asm volatile("" : "+r"(number));
  return number;
}

// Partial ranges of the warps of a segment, for two exchanges: of all elements and of the finite.
template <class In>
struct Exchange {
  KeyOf<In> low[2][kMaxClusterWarps], high[2][kMaxClusterWarps];
  cuda::Mailbox mail[2];  // of clusters
};
template <class In>
__device__ __forceinline__ Exchange<In>& exchange_of() {
  __shared__ Exchange<In> exchange;
  return exchange;
}

// The first thing that the blocks of a cluster do.
template <class In>
__device__ __forceinline__ void open_exchange(int cluster, bool symmetric) {
  if (threadIdx.x == 0) {
    const std::uint32_t keys = blockDim.x / cuda::kWarp * cluster * (symmetric ? 1 : 2);
    for (cuda::Mailbox& mail : exchange_of<In>().mail) mail.expect(keys * sizeof(KeyOf<In>));
  }
  cuda::cluster_arrive_unordered();
}

template <Team kTeam>
__device__ __forceinline__ int team_rank(int cluster) {
  if (kTeam == Team::Warp) return threadIdx.x % cuda::kWarp;
  return cluster > 1 ? cuda::cluster_rank() * blockDim.x + threadIdx.x : threadIdx.x;
}

// The range over the whole team. One barrier: every warp reduces the partial ranges itself.
template <Team kTeam, class In>
__device__ __forceinline__ Extent<In> team_extent(int round, Extent<In> extent, int cluster,
                                                  bool symmetric) {
  extent = warp_extent(extent, symmetric);
  if constexpr (kTeam == Team::Warp) return extent;
  Exchange<In>& exchange = exchange_of<In>();
  const int warps = blockDim.x / cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const int lane = threadIdx.x % cuda::kWarp;
  if (cluster == 1) {
    if (lane == 0) {
      exchange.high[round][warp] = extent.high;
      if (!symmetric) exchange.low[round][warp] = extent.low;
    }
    __syncthreads();
  } else {
    // The first round also waits until every block of the cluster runs and expects its mail.
    if (round == 0) cuda::cluster_wait();
    cuda::Mailbox& mail = exchange.mail[round];
    if (lane < cluster) {
      const int place = cuda::cluster_rank() * warps + warp;
      mail.send(&exchange.high[round][place], lane, extent.high);
      if (!symmetric) mail.send(&exchange.low[round][place], lane, extent.low);
    }
    mail.wait();
  }
  Extent<In> all;
  const auto add = [&](int i) {
    all.high = max(all.high, exchange.high[round][i]);
    if (!symmetric) all.low = min(all.low, exchange.low[round][i]);
  };
  if (cluster == 1) {
    static_assert(kWideRowThreads / cuda::kWarp <= cuda::kWarp);
    if (lane < warps) add(lane);
  } else {
#pragma unroll 1
    for (int i = lane; i < warps * cluster; i += cuda::kWarp) add(i);
  }
  return warp_extent(all, symmetric);
}

template <class In, Codes kCodes, Team kTeam, int kVectors>
__global__ void __launch_bounds__(kTeam == Team::Warp ? kLaneThreads : kRowThreads, 2)
    quantize_rows(const __grid_constant__ RowArgs<In> row_args) {
  using C = Compute<In>;
  const SegmentArgs<In>& args = row_args.segments;
  const bool symmetric = args.recipe.mode == Mode::Symmetric;
  const int cluster = kTeam == Team::Warp ? 1 : row_args.cluster;
  if (cluster > 1) open_exchange<In>(cluster, symmetric);
  const int team = kTeam == Team::Warp ? cuda::kWarp : blockDim.x * cluster;
  const int rank = team_rank<kTeam>(cluster);
  std::uint32_t index;
  if constexpr (kTeam == Team::Warp) {
    index = blockIdx.x * (kLaneThreads / cuda::kWarp) + threadIdx.x / cuda::kWarp;
    if (index >= args.count) return;
  } else {
    index = cuda::cluster_index();
  }

  uint4 v[kVectors];
  In edge_value{};
  bool edge = false;
  Extent<In> extent;
  {
    const Segment<In> segment(args, index);
    const Run<In, kCodes> run(segment.input, segment.output, segment.length);
    const unsigned vectors = static_cast<unsigned>(run.vectors);
    bool active[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const unsigned i = rank + k * team;
      active[k] = i < vectors;
      v[k] = make_uint4(0, 0, 0, 0);
      if (active[k]) v[k] = cuda::load_once(run.input + i * kPerVector<In>);
    }
    edge = run.has_edge(rank);
    if (edge) edge_value = *run.edge(rank);
    extent = extent_of<In>(v, active, symmetric);
    if (edge) extent.add(key_of(edge_value, symmetric));
  }
  extent = team_extent<kTeam>(0, extent, cluster, symmetric);
  const bool special = extent.special();
  if (special && args.recipe.nonfinite == NonFinite::Saturate) {
    const Segment<In> segment(args, again(index));
    extent = walk_finite(segment.input, segment.length, rank, team, symmetric);
    extent = team_extent<kTeam>(1, extent, cluster, symmetric);
  }

  const math::Range<C> range = range_of(extent, symmetric, special);
  const math::SegmentParameters<C> parameters = math::segment_parameters(args.recipe, range);
  const Segment<In> segment(args, again(index));
  const Run<In, kCodes> run(segment.input, segment.output, segment.length);
  if (rank == 0) store_parameters(args, segment, parameters);
  if (!run.whole || !is_fast(args.recipe, parameters, range)) {
    walk_codes<In, kCodes>(segment.input, segment.output, segment.length, args.recipe, parameters,
                           args.order, rank, team);
    return;
  }
  const unsigned vectors = static_cast<unsigned>(run.vectors);
  const int place = team_rank<kTeam>(cluster);
  const Numbers<C> numbers(parameters, args.recipe);
  by_rule(args.recipe.quotient, [&](auto divide) {
    constexpr int kBytes = kWordBytes<In, kCodes>;
    const int lane = threadIdx.x % cuda::kWarp;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const unsigned i = place + k * team;
      const auto word = encode<In, kCodes, true, divide.value, Bounds::Clamp>(
          v[k], numbers, args.recipe, args.order);
      std::uint8_t* to = run.output + i * kBytes;
      if (run.shift != 0)
        cuda::store_shifted<kBytes>(to, word, run.shift, lane,
                                    min(static_cast<int>(vectors - 1 - (i - lane)), 31),
                                    cuda::kWarp);
      else if (i < vectors)
        cuda::store_word<kBytes>(to, word);
    }
  });
  if (rank < cuda::kWarp) {
    std::uint8_t code = 0;
    if (edge) code = math::code_of(math::widen(edge_value), args.recipe, parameters);
    run.store_edge(rank, edge, code, args.order);
  }
}

}  // namespace planq::affine
