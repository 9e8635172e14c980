// Segments that stay in registers: read once, reduced, quantized and written.
//
// quantize_subwarps: one vector of a segment per lane, so a segment has 1 to 32 lanes; each warp
// works on kSets sets of segments at a time. quantize_rows: a segment has a team, which is a warp
// or else a block or a cluster of blocks, and every thread kVectors vectors of it.
//
// These kernels take any alignment, strides and length; aligned_rows.cuh has those for regular
// segments.
#pragma once

#include "cuda/launch.cuh"
#include "ops/affine/segments/segments.cuh"
#include "ops/affine/segments/teams.cuh"

namespace planq::affine {

inline constexpr int kSubwarpThreads = 128;

template <class In>
struct SubwarpArgs {
  SegmentArgs<In> segments;
  int lanes_log2;  // a segment's lanes: a power of two, and with edges at least 2 * kPerVector
};

template <class In>
struct RowArgs {
  SegmentArgs<In> segments;
  int cluster;  // blocks of a segment
};

// --- Subwarps ----------------------------------------------------------------------------------

// Where a lane stands: its set of lanes works on segments first, first + step, ...
struct SubwarpPlace {
  int rank, width, step;
  std::uint32_t first;

  __device__ __forceinline__ SubwarpPlace(int lanes_log2, int sets) {
    const int lane = threadIdx.x % cuda::kWarp;
    width = 1 << lanes_log2;
    rank = lane & (width - 1);
    step = cuda::kWarp >> lanes_log2;
    const std::uint32_t warp =
        blockIdx.x * (kSubwarpThreads / cuda::kWarp) + threadIdx.x / cuda::kWarp;
    first = warp * sets * step + (lane >> lanes_log2);
  }
};

// The range of this lane's own segment over its finite elements.
template <class In, int kSets>
__device__ __forceinline__ KeyRange<In> finite_subwarps(const SegmentArgs<In>& args,
                                                        const SubwarpPlace& place, int own) {
  const bool symmetric = args.spec.mode == Mode::Symmetric;
  KeyRange<In> mine;
#pragma unroll 1
  for (int k = 0; k < kSets; ++k) {
    const std::uint32_t index = place.first + k * place.step;
    KeyRange<In> key_range;
    if (index < args.count) {
      const Segment<In> segment(args, index);
      key_range = walk_finite(segment.input, segment.length, place.rank, place.width, symmetric);
    }
    key_range = subwarp_key_range(key_range, place.width, symmetric);
    if (k == own) mine = key_range;
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
__global__ void __launch_bounds__(kSubwarpThreads)
    quantize_subwarps(const __grid_constant__ SubwarpArgs<In> subwarp_args) {
  using C = Compute<In>;
  cuda::follow_previous();
  const SegmentArgs<In>& args = subwarp_args.segments;
  const bool symmetric = args.spec.mode == Mode::Symmetric;
  const SubwarpPlace place(subwarp_args.lanes_log2, kSets);

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
    const AlignedSpan<In, kCodes> span(segment.input, segment.output, segment.length);
    active[k] = exists && place.rank < span.vectors;
    edge[k] = exists && span.has_edge(place.rank);
    regular = regular && (span.whole || !exists);
    if (active[k]) v[k] = cuda::load_once(span.input + place.rank * kPerVector<In>);
    if (edge[k]) edges[k] = *span.edge(place.rank);
  }

  // Lane k of a set goes on with the set's segment k, so that parameters are worked out side by
  // side.
  const int own = place.rank & (kSets - 1);
  KeyRange<In> mine;
#pragma unroll
  for (int k = 0; k < kSets; ++k) {
    Collector<In> collector;
    if (active[k]) symmetric ? collector.add_magnitudes(v[k]) : collector.add_ordered(v[k]);
    KeyRange<In> key_range = collector.key_range();
    if (edge[k]) key_range.add(key_of(edges[k], symmetric));
    key_range = subwarp_key_range(key_range, place.width, symmetric);
    if (own == k) mine = key_range;
  }
  const bool special = mine.special();
  if (args.spec.nonfinite == NonFinite::Saturate && __any_sync(cuda::kAllLanes, special))
    mine = finite_subwarps<In, kSets>(args, place, own);

  const math::Range<C> range = range_of(mine, symmetric, special);
  const math::SegmentParameters<C> parameters = math::segment_parameters(args.spec, range);
  const std::uint32_t own_index = place.first + own * place.step;
  const bool owns = own_index < args.count;
  if (owns && place.rank < kSets) store_parameters(args, Segment<In>(args, own_index), parameters);
  const bool fast = regular && (!owns || is_fast(args.spec, parameters, range));

  if (!__all_sync(cuda::kAllLanes, fast)) {
#pragma unroll 1
    for (int k = 0; k < kSets; ++k) {
      math::SegmentParameters<C> theirs = from_lane(parameters, k, place.width, symmetric);
      theirs.poisoned = __shfl_sync(cuda::kAllLanes, parameters.poisoned, k, place.width);
      const std::uint32_t index = place.first + k * place.step;
      if (index >= args.count) continue;
      const Segment<In> segment(args, index);
      walk_codes<In, kCodes>(segment.input, segment.output, segment.length, args.spec, theirs,
                             args.order, place.rank, place.width);
    }
    return;
  }
#pragma unroll 1
  for (int k = 0; k < kSets; ++k) {
    constexpr int kBytes = kWordBytes<In, kCodes>;
    const auto theirs = from_lane(parameters, k, place.width, symmetric);
    const Segment<In> segment(args, place.first + k * place.step);
    const Numbers<C> numbers(theirs, args.spec);
    const auto word = encode_by_any_rule<In, kCodes>(v[0], numbers, args.spec, args.order);
    const AlignedSpan<In, kCodes> span(segment.input, segment.output, segment.length);
    const bool exists = place.first + k * place.step < args.count;
    const auto last = exists ? static_cast<int>(span.vectors) - 1 : -1;
    cuda::store_unaligned<kBytes>(span.output + place.rank * kBytes, word, span.shift, place.rank,
                                  last, place.width);
    std::uint8_t code = 0;
    if (edge[0]) code = code_of<kCodes>(math::widen(edges[0]), args.spec, theirs);
    span.store_edge(place.rank, edge[0], code, args.order);
    move_down(v);
    move_down(edges);
    move_down(edge);
  }
}

// --- A warp, a block or a cluster --------------------------------------------------------------

// The same number, as one that the compiler does not know: what is computed from it is computed
// again instead of occupying registers meanwhile.
__device__ __forceinline__ std::uint32_t again(std::uint32_t number) {
  asm volatile("" : "+r"(number));
  return number;
}

template <class In, Codes kCodes, Team kTeam, int kVectors>
__global__ void __launch_bounds__(kTeam == Team::Warp ? kSubwarpThreads : kRowThreads, 2)
    quantize_rows(const __grid_constant__ RowArgs<In> row_args) {
  using C = Compute<In>;
  cuda::follow_previous();
  const SegmentArgs<In>& args = row_args.segments;
  const bool symmetric = args.spec.mode == Mode::Symmetric;
  const int cluster = kTeam == Team::Warp ? 1 : row_args.cluster;
  if (cluster > 1) open_exchange<In>(cluster, symmetric);
  const int team = kTeam == Team::Warp ? cuda::kWarp : blockDim.x * cluster;
  const int rank = team_rank<kTeam>(cluster);
  std::uint32_t index;
  if constexpr (kTeam == Team::Warp) {
    index = blockIdx.x * (kSubwarpThreads / cuda::kWarp) + threadIdx.x / cuda::kWarp;
    if (index >= args.count) return;
  } else {
    index = cuda::cluster_index();
  }

  uint4 v[kVectors];
  In edge_value{};
  bool edge = false;
  KeyRange<In> key_range;
  {
    const Segment<In> segment(args, index);
    const AlignedSpan<In, kCodes> span(segment.input, segment.output, segment.length);
    const unsigned vectors = static_cast<unsigned>(span.vectors);
    bool active[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const unsigned i = rank + k * team;
      active[k] = i < vectors;
      v[k] = make_uint4(0, 0, 0, 0);
      if (active[k]) v[k] = cuda::load_once(span.input + i * kPerVector<In>);
    }
    edge = span.has_edge(rank);
    if (edge) edge_value = *span.edge(rank);
    key_range = key_range_of<In>(v, active, symmetric);
    if (edge) key_range.add(key_of(edge_value, symmetric));
  }
  key_range = team_key_range<kTeam>(0, key_range, cluster, symmetric);
  const bool special = key_range.special();
  if (special && args.spec.nonfinite == NonFinite::Saturate) {
    const Segment<In> segment(args, again(index));
    key_range = walk_finite(segment.input, segment.length, rank, team, symmetric);
    key_range = team_key_range<kTeam>(1, key_range, cluster, symmetric);
  }

  const math::Range<C> range = range_of(key_range, symmetric, special);
  const math::SegmentParameters<C> parameters = math::segment_parameters(args.spec, range);
  const Segment<In> segment(args, again(index));
  const AlignedSpan<In, kCodes> span(segment.input, segment.output, segment.length);
  if (rank == 0) store_parameters(args, segment, parameters);
  if (!span.whole || !is_fast(args.spec, parameters, range)) {
    walk_codes<In, kCodes>(segment.input, segment.output, segment.length, args.spec, parameters,
                           args.order, rank, team);
    return;
  }
  const unsigned vectors = static_cast<unsigned>(span.vectors);
  const int place = team_rank<kTeam>(cluster);
  const Numbers<C> numbers(parameters, args.spec);
  constexpr int kBytes = kWordBytes<In, kCodes>;
  const int lane = threadIdx.x % cuda::kWarp;
#pragma unroll 1
  for (int k = 0; k < kVectors; ++k) {
    const unsigned i = place + k * team;
    const auto word = encode_by_any_rule<In, kCodes>(v[0], numbers, args.spec, args.order);
    std::uint8_t* to = span.output + i * kBytes;
    if (span.shift != 0)
      cuda::store_unaligned<kBytes>(to, word, span.shift, lane,
                                    min(static_cast<int>(vectors - 1 - (i - lane)), 31),
                                    cuda::kWarp);
    else if (i < vectors)
      cuda::store_word<kBytes>(to, word);
    move_down(v);
  }
  if (rank < cuda::kWarp) {
    std::uint8_t code = 0;
    if (edge) code = code_of<kCodes>(math::widen(edge_value), args.spec, parameters);
    span.store_edge(rank, edge, code, args.order);
  }
}

}  // namespace planq::affine
