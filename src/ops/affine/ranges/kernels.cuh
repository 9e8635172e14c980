// Kernels that measure ranges. A segment is lines of consecutive elements, read as aligned vectors
// and, where lines do not begin or end with one, single elements at their edges; or else columns
// that threads own. Blocks that share a result leave keys in memory, and a last kernel combines
// them.
#pragma once

#include "cuda/key_range.cuh"
#include "cuda/launch.cuh"
#include "cuda/lines.cuh"
#include "ops/affine/ranges/cuda.h"
#include "ops/affine/ranges/ends.h"
#include "ops/affine/ranges/ranges.h"

namespace planq::cuda {

// --- Results -----------------------------------------------------------------------------------

template <class In>
struct RangeResults {
  using C = Compute<In>;
  C *low, *high;  // low: asymmetric only
  const C *previous_low, *previous_high;
  IndexSpace at;  // by RangeEnd
  bool symmetric, saturate;

  template <bool kIsHigh>
  __device__ __forceinline__ void put_end(const Offsets& offsets, C found, bool none) const {
    const C* before = kIsHigh ? previous_high : previous_low;
    if (before != nullptr) before += offsets.at[kIsHigh ? kPreviousHigh : kPreviousLow];
    const C stored = math::stored_end<kIsHigh>(found, none, before, saturate);
    store_single((kIsHigh ? high : low) + offsets.at[kIsHigh ? kHigh : kLow], stored);
  }
  __device__ __forceinline__ void put(std::int64_t index, const KeyRange<In>& key_range) const {
    const Offsets offsets = at.offsets(index);
    const bool none = symmetric ? key_range.high < 0 : key_range.low > key_range.high;
    const bool poisoned =
        key_range.high > kInfinityKey<In> || (!symmetric && key_range.low < ~kInfinityKey<In>);
    const C nan = math::canonical_nan<C>();
    put_end<true>(offsets, poisoned ? nan : value_of<In>(key_range.high), none);
    if (!symmetric) put_end<false>(offsets, poisoned ? nan : value_of<In>(key_range.low), none);
  }
};

// Keys of pieces on their way to combine_ranges().
template <class In>
struct RangeKeys {
  KeyOf<In>*low, *high;  // low: asymmetric only

  __device__ __forceinline__ void put(std::int64_t at, const KeyRange<In>& key_range) const {
    high[at] = key_range.high;
    if (low != nullptr) low[at] = key_range.low;
  }
  __device__ __forceinline__ KeyRange<In> get(std::int64_t at) const {
    KeyRange<In> key_range;
    key_range.high = high[at];
    if (low != nullptr) key_range.low = low[at];
    return key_range;
  }
};

// --- Segments ----------------------------------------------------------------------------------

template <class In>
struct SegmentRangeArgs : LineWalk {  // `parts` teams; lanes: a segment has 2^width_log2
  const In* input;
  RangeResults<In> results;
  RangeKeys<In> keys;  // [segment][part], where there are several parts
  IndexSpace starts;
  std::int64_t count;
  std::int64_t first_block;  // of this launch
};

// A few lanes for each segment of one line and at most a vector a lane. Every warp works on kSets
// sets of segments at a time.
inline constexpr int kRangeSets = 4;

template <class In, bool kAligned>
__global__ void __launch_bounds__(kRangeThreads)
    subwarp_ranges(const __grid_constant__ SegmentRangeArgs<In> args) {
  let_dependents_start();
  const bool symmetric = args.results.symmetric, finite = args.results.saturate;
  const int lane = threadIdx.x % kWarp, width = 1 << args.width_log2;
  const int rank = lane & (width - 1), step = kWarp >> args.width_log2;
  const std::int64_t warp =
      (args.first_block + blockIdx.x) * (kRangeThreads / kWarp) + threadIdx.x / kWarp;
  const std::int64_t first = warp * (kRangeSets * step) + (lane >> args.width_log2);
  uint4 v[kRangeSets];
  In edges[kRangeSets];
  bool active[kRangeSets], edge[kRangeSets];
#pragma unroll
  for (int k = 0; k < kRangeSets; ++k) {
    const std::int64_t index = first + k * step;
    const bool exists = index < args.count;
    const In* from = args.input + (exists ? element_offset(args.starts, index) : 0);
    edge[k] = false;
    if constexpr (kAligned) {
      active[k] = exists && rank * kPerVector<In> < args.length;
      if (active[k]) v[k] = load_once(from + rank * kPerVector<In>);
    } else {
      const AlignedLine<In> line(from, args.length);
      active[k] = exists && rank < line.vectors;
      edge[k] = exists && line.has_edge(rank);
      if (active[k]) v[k] = load_once(line.input + rank * kPerVector<In>);
      if (edge[k]) edges[k] = load_single(line.edge(rank));
    }
  }
  wait_for_previous();
#pragma unroll
  for (int k = 0; k < kRangeSets; ++k) {
    Collector<In> collector;
    const uint4 one[1] = {v[k]};
    const bool there[1] = {active[k]};
    collector.add(one, there, symmetric, finite);
    KeyRange<In> key_range = collector.key_range();
    if (!kAligned && edge[k]) add_element(key_range, edges[k], symmetric, finite);
    key_range = subwarp_key_range(key_range, width, symmetric);
    const std::int64_t index = first + k * step;
    if (rank == 0 && index < args.count) args.results.put(index, key_range);
  }
}

// The key range of a team's share of part `part` of a segment.
template <class In, int kThreads, bool kAligned>
__device__ __forceinline__ KeyRange<In> team_key_range(const SegmentRangeArgs<In>& args,
                                                       const In* input, std::int64_t part,
                                                       int rank) {
  const bool symmetric = args.results.symmetric, finite = args.results.saturate;
  KeyRange<In> key_range;
  if (kAligned || !args.is_short) {
    Collector<In> collector;
    each_vector<In, kThreads, kRangeBatch, kAligned, ReadOnce>(
        args, input, part, rank,
        [&](const uint4(&v)[kRangeBatch], const bool (&active)[kRangeBatch]) {
          collector.add(v, active, symmetric, finite);
        });
    key_range = collector.key_range();
  }
  if constexpr (!kAligned) {
    const auto add = [&](In x) { add_element(key_range, x, symmetric, finite); };
    if (args.is_short)
      each_element<In, kThreads, kRangeBatch, ReadOnce>(args, input, part, rank, add);
    else
      each_edge<In, kThreads, ReadOnce>(args, input, part, rank, add);
  }
  return key_range;
}

template <class In>
__device__ __forceinline__ KeyRange<In> block_key_range(KeyRange<In> mine, bool symmetric,
                                                        int thread) {
  constexpr int kWarps = kRangeThreads / kWarp;
  __shared__ KeyOf<In> low[kWarps], high[kWarps];
  const int lane = thread % kWarp, warp = thread / kWarp;
  mine = warp_key_range(mine, symmetric);
  if (lane == 0) {
    low[warp] = mine.low;
    high[warp] = mine.high;
  }
  __syncthreads();
  mine = {};
  if (lane < kWarps) mine = {low[lane], high[lane]};
  return subwarp_key_range(mine, kWarps, symmetric);
}

// A team, a warp or a block, for each part of a segment.
template <class In, int kThreads, bool kAligned>
__global__ void __launch_bounds__(kRangeThreads, kRangeBlocks)
    team_ranges(const __grid_constant__ SegmentRangeArgs<In> args) {
  let_dependents_start();
  constexpr int kTeams = kRangeThreads / kThreads;
  const std::int64_t team = (args.first_block + blockIdx.x) * kTeams + threadIdx.x / kThreads;
  if (kTeams > 1 && team >= args.count) return;  // warps have no parts
  const std::int64_t segment = args.parts == 1 ? team : team / args.parts;
  const std::int64_t part = team - segment * args.parts;
  const int rank = threadIdx.x % kThreads;
  const In* input = args.input + element_offset(args.starts, segment);
  KeyRange<In> key_range = team_key_range<In, kThreads, kAligned>(args, input, part, rank);
  if constexpr (kThreads == kWarp)
    key_range = warp_key_range(key_range, args.results.symmetric);
  else
    key_range = block_key_range(key_range, args.results.symmetric, rank);
  wait_for_previous();
  if (rank != 0) return;
  if (args.parts == 1)
    args.results.put(segment, key_range);
  else
    args.keys.put(team, key_range);
}

// --- Columns -----------------------------------------------------------------------------------

template <class In>
struct ColumnRangeArgs {
  const In* input;
  RangeResults<In> results;
  RangeKeys<In> keys;  // [chunk][batch][column]; where there are none, a column is a segment
  IndexSpace batches, rows;
  std::int64_t row_count, columns;
  std::int64_t keys_stride;                // columns of all batches
  std::int64_t tiles, chunks, chunk_rows;  // of a batch
  std::int64_t first_block;                // of this launch
};

// Running keys of a vector's columns, or of one column; 16-bit columns two to a word.
template <class In, bool kVector>
class ColumnKeys {
 public:
  static constexpr int kCount = kVector ? kPerVector<In> : 1;

  __device__ __forceinline__ ColumnKeys() {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      high_[i] = kNone;
      low_[i] = ~kNone;
    }
  }
  template <bool kSymmetric, bool kFinite>
  __device__ __forceinline__ void add(const uint4& v) {
    const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      if constexpr (kPairs) {
        const std::uint32_t word = words[i];
        const std::uint32_t special = kFinite ? special_halves<In>(word) : 0;
        const std::uint32_t key =
            kSymmetric ? word & 0x7FFF7FFFu : word ^ (signs_of_halves(word) & 0x7FFF7FFFu);
        high_[i] = __vmaxs2(high_[i], (key & ~special) | (kNone & special));
        if (!kSymmetric) low_[i] = __vmins2(low_[i], (key & ~special) | (~kNone & special));
      } else {
        add_key<kSymmetric, kFinite>(i, key_of(element_of<In>(v, i), kSymmetric));
      }
    }
  }
  template <bool kSymmetric, bool kFinite>
  __device__ __forceinline__ void add(In x) {
    add_key<kSymmetric, kFinite>(0, key_of(x, kSymmetric));
  }
  __device__ __forceinline__ KeyRange<In> key_range(int i) const {
    if constexpr (kPairs)
      return {static_cast<std::int16_t>(low_[i / 2] >> i % 2 * 16),
              static_cast<std::int16_t>(high_[i / 2] >> i % 2 * 16)};
    else
      return {low_[i], high_[i]};
  }

 private:
  static constexpr bool kPairs = kVector && sizeof(In) == 2;
  static constexpr int kKeys = kPairs ? kCount / 2 : kCount;
  using Key = std::conditional_t<kPairs, std::uint32_t, KeyOf<In>>;
  static constexpr Key kNone =
      kPairs ? static_cast<Key>(0x80008000u) : std::numeric_limits<KeyOf<In>>::min();

  template <bool kSymmetric, bool kFinite>
  __device__ __forceinline__ void add_key(int i, KeyOf<In> key) {
    if (kFinite && is_special<In>(key)) return;
    high_[i] = max(high_[i], static_cast<Key>(key));
    if (!kSymmetric) low_[i] = min(low_[i], static_cast<Key>(key));
  }
  Key high_[kKeys], low_[kKeys];
};

// Rows first, first + step, ... below last of the columns that begin at `input`, kRangeBatch at a
// time.
template <class In, bool kVector, bool kSymmetric, bool kFinite>
__device__ __forceinline__ void add_rows(const In* input, const IndexSpace& rows,
                                         std::int64_t first, std::int64_t last, int step,
                                         ColumnKeys<In, kVector>& keys) {
  using Unit = std::conditional_t<kVector, uint4, In>;
#pragma unroll 1
  for (std::int64_t row = first; row < last; row += kRangeBatch * step) {
    Unit ahead[kRangeBatch];
#pragma unroll
    for (int k = 0; k < kRangeBatch; ++k) {
      if (row + k * step >= last) continue;
      const In* from = input + element_offset(rows, row + k * step);
      if constexpr (kVector)
        ahead[k] = load_once(from);
      else
        ahead[k] = load_single(from);
    }
#pragma unroll
    for (int k = 0; k < kRangeBatch; ++k)
      if (row + k * step < last) keys.template add<kSymmetric, kFinite>(ahead[k]);
  }
}

// Combines the threads of a block that share columns: kCount columns for each threadIdx.x. Calls
// put(column of the tile, key range).
template <class In, int kCount, class Of, class Put>
__device__ __forceinline__ void reduce_columns(const Of& key_range_of, const Put& put) {
  __shared__ KeyOf<In> low[kRangeThreads * kCount], high[kRangeThreads * kCount];
  const int width = blockDim.x * kCount, thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const KeyRange<In> key_range = key_range_of(i);
    low[thread * kCount + i] = key_range.low;
    high[thread * kCount + i] = key_range.high;
  }
  __syncthreads();
#pragma unroll 1
  for (int column = thread; column < width; column += kRangeThreads) {
    KeyRange<In> all;
#pragma unroll 4
    for (unsigned y = 0; y < blockDim.y; ++y)
      all.add(KeyRange<In>{low[y * width + column], high[y * width + column]});
    put(column, all);
  }
}

template <class In, bool kVector>
__global__ void __launch_bounds__(kRangeThreads, kColumnBlocks)
    column_ranges(const __grid_constant__ ColumnRangeArgs<In> args) {
  let_dependents_start();
  constexpr int kCount = ColumnKeys<In, kVector>::kCount;
  const std::int64_t block = args.first_block + blockIdx.x;
  const std::int64_t rest = block / args.tiles;
  const std::int64_t batch = rest / args.chunks, chunk = rest - batch * args.chunks;
  const std::int64_t left = (block - rest * args.tiles) * blockDim.x * kCount;
  const std::int64_t column = left + threadIdx.x * kCount;
  const std::int64_t first = chunk * args.chunk_rows;
  const std::int64_t last = min(args.row_count, first + args.chunk_rows);
  const In* input = args.input + element_offset(args.batches, batch) + column;
  const bool finite = args.results.saturate;
  ColumnKeys<In, kVector> keys;
  const auto add = [&](auto symmetric, auto only_finite) {
    add_rows<In, kVector, symmetric.value, only_finite.value>(input, args.rows, first + threadIdx.y,
                                                              last, blockDim.y, keys);
  };
  if (column < args.columns) {
    if (args.results.symmetric)
      finite ? add(std::true_type{}, std::true_type{}) : add(std::true_type{}, std::false_type{});
    else
      finite ? add(std::false_type{}, std::true_type{}) : add(std::false_type{}, std::false_type{});
  }
  wait_for_previous();
  reduce_columns<In, kCount>([&](int i) { return keys.key_range(i); },
                             [&](int at, const KeyRange<In>& key_range) {
                               if (left + at >= args.columns) return;
                               const std::int64_t index = batch * args.columns + left + at;
                               if (args.keys.high == nullptr)
                                 args.results.put(index, key_range);
                               else
                                 args.keys.put(chunk * args.keys_stride + index, key_range);
                             });
}

// --- From pieces to results --------------------------------------------------------------------

template <class In>
struct CombineArgs {
  RangeResults<In> results;
  RangeKeys<In> keys;  // result i: keys i * inner to i * inner + inner - 1 of every chunk
  std::int64_t count, chunks, chunk_stride, inner;
  std::int64_t first_block;  // of this launch
};

// threadIdx.x has a result, threadIdx.y some of its keys.
template <class In>
__global__ void __launch_bounds__(kRangeThreads)
    combine_ranges(const __grid_constant__ CombineArgs<In> args) {
  let_dependents_start();
  const std::int64_t first = (args.first_block + blockIdx.x) * blockDim.x;
  const std::int64_t own = first + threadIdx.x;
  KeyRange<In> key_range;
  wait_for_previous();
  if (own < args.count) {
#pragma unroll 4
    for (std::int64_t i = threadIdx.y; i < args.chunks * args.inner; i += blockDim.y) {
      const std::int64_t chunk = args.inner == 1 ? i : args.chunks == 1 ? 0 : i / args.inner;
      key_range.add(
          args.keys.get(chunk * args.chunk_stride + own * args.inner + (i - chunk * args.inner)));
    }
  }
  if (blockDim.x == 1) {
    key_range = block_key_range(key_range, args.results.symmetric, threadIdx.y);
    if (threadIdx.y == 0) args.results.put(own, key_range);
    return;
  }
  reduce_columns<In, 1>([&](int) { return key_range; },
                        [&](int at, const KeyRange<In>& all) {
                          if (first + at < args.count) args.results.put(first + at, all);
                        });
}

}  // namespace planq::cuda
