// Tiles of attention: a block has some rows of one sequence whose
// heads share a key head, and goes through their keys block by block. Four warps share the keys of
// a block as they make scores, the columns of values as they weigh them, and the rows in between.
//
// Steps over 16 columns, or over 16 keys, are those of docs/numerics/attention.md, and each sum is
// one chain of them. So neither the shape of a tile nor what rows it has changes a
// bit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/mma.cuh"
#include "cuda/pairs.cuh"
#include "ops/affine/affine.h"
#include "ops/attention/attention/rows.cuh"
#include "ops/attention/attention/steps.cuh"

namespace planq::attention {
namespace {

constexpr int kTileThreads = 128, kTileWarps = kTileThreads / cuda::kWarp;
constexpr int kBlock = math::kBlockKeys;
// Keys, or values, that are in shared memory at a time. A warp has eight of them for its scores.
constexpr int kHeldKeys = 8 * kTileWarps;
// Elements between rows in shared memory beyond their own: rows then begin in other banks.
constexpr int kPad = 8;
constexpr int kScorePitch = kBlock + 4, kWeightPitch = kBlock + kPad;
// The place of a key that the cache lacks. Strides, and so places, may be negative.
constexpr int64_t kNoPlace = INT64_MIN;

struct TileArgs : CudaArgs {
  // Whether eight neighbours are a word that is aligned.
  bool whole_query = false, whole_key = false, whole_value = false;
  int64_t tiles = 0;   // of a sequence
  int64_t count = 0;   // of what blocks have to do
  int64_t others = 0;  // sequences with no more rows are another kernel's
  bool fills = true;   // tokens of no sequence are this kernel's
};

// Pieces of a block's shared memory, from `from` on. The one constructor of a kind of memory counts
// its bytes where `from` is null, and carves them otherwise.
struct CarvedMemory {
  int bytes = 0;

  PLANQ_HD explicit CarvedMemory(void* from) : from_(static_cast<unsigned char*>(from)) {}
  template <class E>
  PLANQ_HD E* take(int count) {
    E* const piece = reinterpret_cast<E*>(from_ + bytes);
    bytes += (count * static_cast<int>(sizeof(E)) + 15) / 16 * 16;
    return piece;
  }

 private:
  unsigned char* from_;
};

template <class T, int kRows>
struct TileMemory : CarvedMemory {
  int64_t *key_at, *value_at;  // of the block's keys: elements from the first of the cache
  float *scores, *key_scale, *value_scale;
  float* merged;            // of all spans so far, the values of each row
  float *fading, *other;    // of each row
  int *first, *end, *kind;  // the same: keys of the block that it sees; what its outputs are
  T *query, *held, *weights;
  int query_pitch, held_pitch, value_columns;

  PLANQ_HD TileMemory(void* from, int64_t columns, int64_t of_values)
      : CarvedMemory(from),
        query_pitch(static_cast<int>(columns) + kPad),
        held_pitch(static_cast<int>(columns > of_values ? columns : of_values) + kPad),
        value_columns(static_cast<int>(of_values)) {
    query = take<T>(kRows * query_pitch);
    held = take<T>(kHeldKeys * held_pitch);
    weights = take<T>(kRows * kWeightPitch);
    scores = take<float>(kRows * kScorePitch);
    merged = take<float>(kRows * value_columns);
    key_at = take<int64_t>(kBlock);
    value_at = take<int64_t>(kBlock);
    key_scale = take<float>(kBlock);
    value_scale = take<float>(kBlock);
    fading = take<float>(kRows);
    other = take<float>(kRows);
    first = take<int>(kRows);
    end = take<int>(kRows);
    kind = take<int>(kRows);
  }
};

// Eight neighbours of a query or of a cache as numbers of T, which holds each of them exactly.
// Codes count bytes.
template <class T, DType kStored>
__device__ __forceinline__ uint4 load_eight(const std::uint8_t* from, bool whole) {
  if constexpr (!is_code(kStored)) {
    if (whole) return *reinterpret_cast<const uint4*>(from);
    T each[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) each[i] = reinterpret_cast<const T*>(from)[i];
    uint4 vector;
    memcpy(&vector, each, sizeof vector);
    return vector;
  } else {
    std::uint8_t codes[8];
    if (whole) {
      const uint2 word = *reinterpret_cast<const uint2*>(from);
      memcpy(codes, &word, sizeof word);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) codes[i] = from[i];
    }
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      x[i] = kStored == DType::Int8 ? static_cast<float>(static_cast<std::int8_t>(codes[i]))
                                    : math::float8_value<float>(codes[i], kStored);
    return {cuda::pair_of(x[0], x[1], T{}), cuda::pair_of(x[2], x[3], T{}),
            cuda::pair_of(x[4], x[5], T{}), cuda::pair_of(x[6], x[7], T{})};
  }
}

// Whether one of eight numbers is NaN or infinite.
template <class T>
__device__ __forceinline__ bool has_odd(const uint4& numbers) {
  constexpr std::uint32_t kTop = std::is_same_v<T, math::Half> ? 0x7C00u : 0x7F80u;
  std::uint32_t words[4];
  memcpy(words, &numbers, sizeof words);
  bool odd = false;
#pragma unroll
  for (const std::uint32_t word : words)
    odd = odd || (word & kTop) == kTop || (word >> 16 & kTop) == kTop;
  return odd;
}

template <class T>
__device__ __forceinline__ std::uint32_t word_at(const T* pair) {
  return *reinterpret_cast<const std::uint32_t*>(pair);
}
// The words of a step's first factor: 16 rows from `from` on, as multiply_add() wants them.
template <class T>
__device__ __forceinline__ void load_rows(std::uint32_t (&a)[4], const T* from, int pitch) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const T* const own = from + lane / 4 * pitch + lane % 4 * 2;
  a[0] = word_at(own);
  a[1] = word_at(own + 8 * pitch);
  a[2] = word_at(own + 8);
  a[3] = word_at(own + 8 * pitch + 8);
}

template <class T>
constexpr DType tile_type() {
  return std::is_same_v<T, math::Half> ? DType::Float16 : DType::BFloat16;
}

// What the outputs of a row are.
enum Kind : int { kNumbers, kZeros, kLost };

// kRowTiles: the rows of a block, by 16. kColumnTiles: the most columns of values that a warp has,
// by 8.
template <class T, DType kCache, class Steps, int kRowTiles, int kColumnTiles>
class Tile {
 public:
  static constexpr int kRows = 16 * kRowTiles;
  using Memory = TileMemory<T, kRows>;

  __device__ __forceinline__ Tile(const TileArgs& args, const Memory& memory)
      : args_(args),
        p_(args.p),
        memory_(memory),
        warp_(static_cast<int>(threadIdx.x) / cuda::kWarp),
        lane_(static_cast<int>(threadIdx.x) % cuda::kWarp) {}

  // Rows from number `first` on among those of a sequence and a key head; `span`: the only one, or
  // -1.
  __device__ __forceinline__ void run(int64_t sequence, int64_t key_head, int64_t first,
                                      int64_t span) {
    open(sequence, key_head, first);
    const int64_t from = span < 0 ? keys_.first / math::kSpanKeys : span;
    const int64_t to = span < 0 ? (keys_.end + math::kSpanKeys - 1) / math::kSpanKeys : span + 1;
    if (span < 0 || sees(span)) load_query();
    for (int64_t each = from; each < to; ++each) {
      if (!sees(each)) continue;
      add_span(each * math::kSpanKeys);
      if (span < 0)
        merge_span();
      else
        store_state(span);
    }
    if (span < 0) finish();
  }

 private:
  // Four lanes have a row together, and each of them every fourth pair of its keys.
  static constexpr int kPasses = kRows * 4 > kTileThreads ? kRows * 4 / kTileThreads : 1;
  static constexpr int kLanesOfRow = 4;
  struct Row {
    Keys keys;
    float most, sum, merged_most, merged_sum;  // sum: the lane's own of the four
    bool lost;
  };

  __device__ __forceinline__ int row_of(int pass) const {
    return static_cast<int>(threadIdx.x) / kLanesOfRow + pass * kTileThreads / kLanesOfRow;
  }
  // Calls use(row's number, row) for the rows of this thread. Its warp has others.
  template <class Use>
  __device__ __forceinline__ void each_row(const Use& use) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      if (row_of(pass) < kRows) use(row_of(pass), rows_[pass]);
  }
  __device__ __forceinline__ float& merged(int row, int column) const {
    return memory_.merged[row * memory_.value_columns + column];
  }
  __device__ __forceinline__ bool has(int row) const { return first_row_ + row < row_count_; }
  __device__ __forceinline__ int64_t token_of(int row) const {
    return first_token_ + (first_row_ + row) / p_.group();
  }
  __device__ __forceinline__ int64_t head_of(int row) const {
    return key_head_ * p_.group() + (first_row_ + row) % p_.group();
  }

  __device__ __forceinline__ void open(int64_t sequence, int64_t key_head, int64_t first) {
    sequence_ = sequence;
    key_head_ = key_head;
    first_row_ = first;
    first_token_ = p_.query_start[sequence];
    row_count_ = (p_.query_start[sequence + 1] - first_token_) * p_.group();
    factor_ = p_.factor(key_head);
    const bool lost = !p_.fits(sequence) || !(factor_ > 0);
    each_row([&](int r, Row& row) {
      row.lost = lost;
      row.keys = has(r) && !lost ? p_.seen(sequence, token_of(r)) : Keys{};
      row.merged_most = -math::detail::infinity();
      row.merged_sum = 0;
    });
    keys_ = lost ? Keys{} : keys_of_all();
    for (int i = threadIdx.x; i < kRows * memory_.value_columns; i += kTileThreads)
      memory_.merged[i] = 0;
  }
  // Keys that some row sees. They move on from token to token. If causal, tokens before the first
  // key see none.
  __device__ __forceinline__ Keys keys_of_all() const {
    const int64_t rest = row_count_ - first_row_;
    const int64_t last = token_of(static_cast<int>((rest < kRows ? rest : kRows) - 1));
    const int64_t behind = p_.query_start[sequence_ + 1] - p_.key_length[sequence_];
    const int64_t first = p_.causal && token_of(0) < behind ? behind : token_of(0);
    if (first > last || p_.key_length[sequence_] == 0) return {};
    return {p_.seen(sequence_, first).first, p_.seen(sequence_, last).end};
  }
  __device__ __forceinline__ bool sees(int64_t span) const {
    return keys_.any() && keys_.first < (span + 1) * math::kSpanKeys &&
           keys_.end > span * math::kSpanKeys;
  }

  __device__ __forceinline__ void load_query() {
    const int units = static_cast<int>(p_.key.columns) / 8;
    const auto* const query = static_cast<const T*>(p_.query);
    for (int i = threadIdx.x; i < kRows * units; i += kTileThreads) {
      const int r = i / units, column = i % units * 8;
      uint4 eight = {0, 0, 0, 0};
      if (has(r))
        eight = load_eight<T, kQueryType>(
            reinterpret_cast<const std::uint8_t*>(query + token_of(r) * p_.query_token +
                                                  head_of(r) * p_.query_head + column),
            args_.whole_query);
      *reinterpret_cast<uint4*>(memory_.query + r * memory_.query_pitch + column) = eight;
    }
  }

  // --- A span of keys ----------------------------------------------------------------------------

  __device__ __forceinline__ void add_span(int64_t at) {
    each_row([](int, Row& row) {
      row.most = -math::detail::infinity();
      row.sum = 0;
    });
    clear(found_);
    const int64_t end = keys_.end < at + math::kSpanKeys ? keys_.end : at + math::kSpanKeys;
#pragma unroll 1
    for (int64_t block = at; block < end; block += kBlock)
      if (keys_.first < block + kBlock) add_block(block);
  }

  __device__ __forceinline__ int inside(int64_t key, int64_t block) const {
    const int64_t at = key - block;
    return static_cast<int>(at < 0 ? 0 : at < kBlock ? at : kBlock);
  }

  __device__ __forceinline__ void add_block(int64_t block) {
    __syncthreads();
    first_ = inside(keys_.first, block);
    end_ = inside(keys_.end, block);
    find_rows(block);
    find_places(block);
#pragma unroll 1
    for (int at = first_ / kHeldKeys * kHeldKeys; at < end_; at += kHeldKeys) {
      __syncthreads();
      load_held<false>(at, first_, end_);
      __syncthreads();
      score(at);
    }
    __syncthreads();
    each_row([&](int r, Row& row) { weigh(r, row); });
    __syncthreads();
    fade(memory_.fading);
#pragma unroll 1
    for (int at = first_ / kHeldKeys * kHeldKeys; at < end_; at += kHeldKeys) add_values(at);
  }

  // Which keys of the block each row sees.
  __device__ __forceinline__ void find_rows(int64_t block) {
    each_row([&](int r, Row& row) {
      if (lane_ % kLanesOfRow != 0) return;
      const int first = inside(row.keys.first, block), end = inside(row.keys.end, block);
      memory_.first[r] = first;
      memory_.end[r] = end > first ? end : first;
    });
  }
  // Where each key of the block lies, and its scales. A row that sees one that the cache lacks is
  // lost.
  __device__ __forceinline__ void find_places(int64_t block) {
    static_assert(kTileThreads == kBlock);
    const int j = threadIdx.x;
    bool lacks = false;
    if (first_ <= j && j < end_) {
      const Place at = p_.place_of(sequence_, block + j);
      lacks = at.page < 0;
      const auto offset = [&](const Side& side) {
        return lacks ? kNoPlace
                     : at.page * side.page + at.place * side.place + key_head_ * side.head;
      };
      memory_.key_at[j] = offset(p_.key);
      memory_.value_at[j] = offset(p_.value);
      if (p_.scales_scores)
        memory_.key_scale[j] = lacks ? 1.0f : p_.scale_of(p_.key, at, key_head_);
      if (p_.measured) memory_.value_scale[j] = lacks ? 1.0f : p_.scale_of(p_.value, at, key_head_);
    }
    if (!__syncthreads_or(lacks)) return;
    each_row([&](int r, Row& row) {
      for (int key = memory_.first[r]; key < memory_.end[r]; ++key)
        row.lost = row.lost || memory_.key_at[key] == kNoPlace;
    });
  }

  // Keys, or values, of the block from number `at` on to shared memory; 0 for those that are not
  // between `first` and `end`. Returns whether this thread has seen one that is NaN or infinite.
  template <bool kValues>
  __device__ __forceinline__ bool load_held(int at, int first, int end) {
    constexpr int kBytes = is_code(kCache) ? 1 : 2;
    const Side& side = kValues ? p_.value : p_.key;
    const int64_t* const places = kValues ? memory_.value_at : memory_.key_at;
    const bool whole = kValues ? args_.whole_value : args_.whole_key;
    const int units = static_cast<int>(side.columns) / 8;
    bool odd = false;
    for (int i = threadIdx.x; i < kHeldKeys * units; i += kTileThreads) {
      const int row = i / units, column = i % units * 8, j = at + row;
      uint4 eight = {0, 0, 0, 0};
      if (first <= j && j < end && places[j] != kNoPlace)
        eight = load_eight<T, kCache>(side.data + (places[j] + column) * kBytes, whole);
      if (kValues) odd = odd || has_odd<T>(eight);
      *reinterpret_cast<uint4*>(memory_.held + row * memory_.held_pitch + column) = eight;
    }
    return odd;
  }

  // Products of all rows with the held keys: this warp has eight of these.
  __device__ __forceinline__ void score(int at) {
    float sums[kRowTiles][4] = {};
    const T* const key =
        memory_.held + (warp_ * 8 + lane_ / 4) * memory_.held_pitch + lane_ % 4 * 2;
    const int columns = static_cast<int>(p_.key.columns);
#pragma unroll 2
    for (int k = 0; k < columns; k += 16) {
      const std::uint32_t b0 = word_at(key + k), b1 = word_at(key + k + 8);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        std::uint32_t a[4];
        load_rows(a, memory_.query + 16 * m * memory_.query_pitch + k, memory_.query_pitch);
        Steps::template multiply_add<T>(sums[m], a, b0, b1);
      }
    }
    float* const to = memory_.scores + lane_ / 4 * kScorePitch + at + warp_ * 8 + lane_ % 4 * 2;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      float* const own = to + 16 * m * kScorePitch;
      own[0] = sums[m][0], own[1] = sums[m][1];
      own[8 * kScorePitch] = sums[m][2], own[8 * kScorePitch + 1] = sums[m][3];
    }
  }

  // --- Powers of scores --------------------------------------------------------------------------

  // The keys of a lane: a pair of each eight.
  static constexpr int kPairs = kBlock / 8;

  // A row's scores with the scales of their keys, and bounded. Each lane has its own.
  __device__ __forceinline__ void adjust_scores(int r) const {
#pragma unroll 1
    for (int i = 0; i < 2 * kPairs; ++i) {
      const int j = i / 2 * 8 + lane_ % kLanesOfRow * 2 + i % 2;
      if (j < memory_.first[r] || j >= memory_.end[r]) continue;
      float& x = memory_.scores[r * kScorePitch + j];
      if (p_.scales_scores) x = x * memory_.key_scale[j];
      if (p_.cap > 0) {
        const float share = x * p_.inverse_cap;
        x = p_.cap * math::tanh(share);
      }
    }
  }

  // In the place of a row's scores, what values are weighed by.
  __device__ __forceinline__ void weigh(int r, Row& row) {
    const int first = memory_.first[r], end = memory_.end[r], own = lane_ % kLanesOfRow * 2;
    float x[kPairs][2], most = -math::detail::infinity();
    bool lost = false;
    if (p_.scales_scores || p_.cap > 0) adjust_scores(r);
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int j = 8 * i + own + e;
        const bool sees = first <= j && j < end;
        x[i][e] = sees ? memory_.scores[r * kScorePitch + j] : 0.0f;
        lost = lost || (sees && math::is_lost(x[i][e]));
        if (sees && x[i][e] > most) most = x[i][e];
      }
#pragma unroll
    for (int step = 1; step < kLanesOfRow; step *= 2) {
      const float other = __shfl_xor_sync(cuda::kAllLanes, most, step);
      most = other > most ? other : most;
      lost = __shfl_xor_sync(cuda::kAllLanes, static_cast<int>(lost), step) != 0 || lost;
    }
    const float scaled = most * factor_;
    row.lost = row.lost || lost || math::is_lost(scaled);
    const float next = scaled > row.most ? scaled : row.most;
    const float by = math::fading(row.most, next);
    if (own == 0) memory_.fading[r] = by;
    row.most = next;
    row.sum = row.sum * by;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) store_powers(r, row, 8 * i + own, x[i], first, end);
  }
  __device__ __forceinline__ void store_powers(int r, Row& row, int j, const float (&x)[2],
                                               int first, int end) {
    float weights[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const bool sees = first <= j + e && j + e < end;
      const float power = sees ? math::power_of_score(math::fused(x[e], factor_, -row.most)) : 0.0f;
      row.sum = row.sum + power;
      weights[e] = sees && p_.measured ? power * memory_.value_scale[j + e] : power;
    }
    *reinterpret_cast<std::uint32_t*>(memory_.weights + r * kWeightPitch + j) =
        cuda::pair_of(weights[0], weights[1], T{});
  }

  // --- Values ------------------------------------------------------------------------------------

  using Sums = float[kRowTiles][kColumnTiles][4];

  __device__ __forceinline__ int column_of(int tile) const {
    return (warp_ + kTileWarps * tile) * 8;
  }
  // Calls use(m, c, i, row, column) for each sum of this lane that there is.
  template <class Use>
  __device__ __forceinline__ void each_sum(const Use& use) const {
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      if (column_of(c) >= p_.value.columns) continue;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          use(m, c, i, 16 * m + lane_ / 4 + i / 2 * 8, column_of(c) + lane_ % 4 * 2 + i % 2);
    }
  }
  __device__ __forceinline__ static void clear(Sums& sums) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int c = 0; c < kColumnTiles; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][c][i] = 0;
  }
  __device__ __forceinline__ void fade(const float* by) {
    each_sum(
        [&](int m, int c, int i, int row, int) { found_[m][c][i] = found_[m][c][i] * by[row]; });
  }

  // All rows together, whose keys lie between first_ and end_. A NaN or an infinity times 0 is a
  // NaN, so where there are such values, each row meets those that it sees, and no others.
  __device__ __forceinline__ void add_values(int at) {
    int r = -1;
#pragma unroll 1
    do {
      const int first = r < 0 ? first_ : memory_.first[r], end = r < 0 ? end_ : memory_.end[r];
      __syncthreads();
      const bool odd = load_held<true>(at, first, end);
      if (__syncthreads_or(odd) && r < 0) {
        r = 0;
        continue;
      }
      multiply_values(at, r);
      r = r < 0 ? kRows : r + 1;
    } while (r < kRows);
  }
  // Adds the held values times the weights, to all rows or to one of them.
  __device__ __forceinline__ void multiply_values(int at, int only) {
    std::uint32_t a[kRowTiles][2][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int step = 0; step < 2; ++step)
        load_rows(a[m][step], memory_.weights + 16 * m * kWeightPitch + at + 16 * step,
                  kWeightPitch);
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      if (column_of(c) >= p_.value.columns) continue;
      std::uint32_t b[4];
      cuda::load_transposed_matrices(
          b, cuda::shared_address_of(memory_.held + lane_ * memory_.held_pitch + column_of(c)));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        float sums[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] = found_[m][c][i];
        Steps::template multiply_add<T>(sums, a[m][0], b[0], b[1]);
        Steps::template multiply_add<T>(sums, a[m][1], b[2], b[3]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (only < 0 || only == 16 * m + lane_ / 4 + i / 2 * 8) found_[m][c][i] = sums[i];
      }
    }
  }

  // --- Spans, and the end ------------------------------------------------------------------------

  // L of a row, of which each lane has a quarter.
  __device__ __forceinline__ float total(const Row& row) const {
    const float half = row.sum + __shfl_xor_sync(cuda::kAllLanes, row.sum, 1);
    return half + __shfl_xor_sync(cuda::kAllLanes, half, 2);
  }

  __device__ __forceinline__ void merge_span() {
    __syncthreads();
    each_row([&](int r, Row& row) {
      const math::Merging merging(row.merged_most, row.most);
      row.merged_sum = merging.sum(row.merged_sum, total(row));
      row.merged_most = merging.most;
      memory_.fading[r] = merging.first;
      memory_.other[r] = merging.second;
    });
    __syncthreads();
    each_sum([&](int m, int c, int i, int row, int column) {
      const float before = merged(row, column) * memory_.fading[row];
      const float own = found_[m][c][i] * memory_.other[row];
      merged(row, column) = before + own;
    });
  }

  __device__ __forceinline__ void store_state(int64_t span) {
    each_row([&](int r, Row& row) {
      const float sum = total(row);
      if (!has(r) || lane_ % kLanesOfRow != 0) return;
      float* const state = args_.state(token_of(r), head_of(r), span);
      state[0] = row.lost ? math::canonical_nan<float>() : row.most;
      state[1] = sum;
    });
    __syncthreads();
    each_sum(
        [&](int m, int c, int i, int row, int column) { merged(row, column) = found_[m][c][i]; });
    __syncthreads();
    each_value([&](int row, int column, float x) {
      args_.state(token_of(row), head_of(row), span)[2 + column] = x;
    });
    __syncthreads();
  }
  // Calls use(row, column, x) for what threads have left in shared memory, along rows.
  template <class Use>
  __device__ __forceinline__ void each_value(const Use& use) const {
    const int columns = memory_.value_columns;
#pragma unroll 1
    for (int i = threadIdx.x; i < kRows * columns; i += kTileThreads) {
      const int row = i / columns;
      if (has(row)) use(row, i - row * columns, memory_.merged[i]);
    }
  }

  __device__ __forceinline__ void finish() {
    __syncthreads();
    each_row([&](int r, Row& row) {
      if (!has(r) || lane_ % kLanesOfRow != 0) return;
      const math::RowEnd end(row.merged_most, row.merged_sum, row.lost, args_.sink_of(head_of(r)));
      memory_.fading[r] = end.fading;
      memory_.other[r] = end.inverse;
      memory_.kind[r] = end.lost ? kLost : row.keys.any() ? kNumbers : kZeros;
      if (p_.lse) p_.lse[token_of(r) * p_.lse_token + head_of(r)] = math::narrow<float>(end.lse);
    });
    __syncthreads();
    const float scale = p_.head_scale(p_.value, key_head_);
    each_value([&](int row, int column, float x) {
      const math::RowFactors factors{memory_.fading[row], memory_.other[row]};
      const float y = factors.output(x, p_.scales_outputs() ? &scale : nullptr);
      args_.store(token_of(row), head_of(row), column,
                  memory_.kind[row] == kNumbers ? y
                  : memory_.kind[row] == kZeros ? 0.0f
                                                : math::canonical_nan<float>());
    });
    __syncthreads();
  }

  static constexpr DType kQueryType = tile_type<T>();

  const TileArgs& args_;
  const Layout& p_;
  const Memory& memory_;
  const int warp_, lane_;
  int64_t sequence_, key_head_, first_row_, row_count_, first_token_;
  Keys keys_;        // that some row sees
  int first_, end_;  // those of them in the block
  float factor_;
  Row rows_[kPasses];
  Sums found_;
};

// Rows of tokens that no sequence has, or of all tokens where starts are wrong: every so many of
// them, for the heads of one key head.
__device__ __forceinline__ void fill_token(const CudaArgs& args, int64_t token, int64_t key_head,
                                           bool lost) {
  const Layout& p = args.p;
#pragma unroll 1
  for (int64_t head = key_head * p.group(); head < (key_head + 1) * p.group(); ++head) {
    const math::RowEnd end(-math::detail::infinity(), 0, lost, args.sink_of(head));
    if (p.lse && threadIdx.x == 0) p.lse[token * p.lse_token + head] = math::narrow<float>(end.lse);
    for (int64_t column = threadIdx.x; column < p.value.columns; column += blockDim.x)
      args.store(token, head, column, end.lost ? math::canonical_nan<float>() : 0.0f);
  }
}
// The rows of a key head of tokens that no sequence has, or of all where starts are wrong: from
// token `first` on every `step`th.
__device__ __forceinline__ void fill_tokens(const TileArgs& args, bool right, int64_t first,
                                            int64_t step, int64_t key_head) {
  const Layout& p = args.p;
  const bool lost = !right || !(p.factor(key_head) > 0);
  const int64_t before = right ? p.query_start[0] : p.tokens;
  for (int64_t token = first; token < before; token += step)
    fill_token(args, token, key_head, lost);
  if (!right) return;
  for (int64_t token = p.query_start[p.batch] + first; token < p.tokens; token += step)
    fill_token(args, token, key_head, lost);
}
// The same for all tokens, and those whose sequence is lost. Not inlined: few launches have such.
__device__ __noinline__ void fill_rest(const TileArgs& args, bool right, int64_t key_head) {
  const Layout& p = args.p;
  fill_tokens(args, right, 0, 1, key_head);
  if (!right) return;
  bool lost = false;
  for (int64_t i = threadIdx.x; i < p.batch; i += blockDim.x)
    lost = lost || args.is_lost(i, key_head);
  if (!__syncthreads_or(lost)) return;
  for (int64_t i = 0; i < p.batch; ++i)
    if (args.is_lost(i, key_head))
      for (int64_t token = p.query_start[i]; token < p.query_start[i + 1]; ++token)
        fill_token(args, token, key_head, true);
}

// What there is to do, in this order: sequences, their tiles, key heads, spans. Where spans have no
// blocks of their own, tokens of no sequence are one more sequence.
template <class T, DType kCache, class Steps, int kRowTiles, int kColumnTiles>
__global__ void __launch_bounds__(kTileThreads)
    attend_tiles(const __grid_constant__ TileArgs args) {
  const Layout& p = args.p;
  const TileMemory<T, 16 * kRowTiles> memory(cuda::dynamic_shared(), p.key.columns,
                                             p.value.columns);
  Tile<T, kCache, Steps, kRowTiles, kColumnTiles> tile(args, memory);
  const bool right = *args.starts_are_right != 0;
#pragma unroll 1
  for (int64_t work = blockIdx.x; work < args.count; work += gridDim.x) {
    const int64_t of_span = args.states ? work / args.spans : work;
    const int64_t span = args.states ? work % args.spans : -1;
    const int64_t key_head = of_span % p.key_heads, of_tiles = of_span / p.key_heads;
    const int64_t own = of_tiles % args.tiles, sequence = of_tiles / args.tiles;
    if (sequence == p.batch) {
      fill_tokens(args, right, own, args.tiles, key_head);
      continue;
    }
    if (!right) continue;
    const int64_t rows = (p.query_start[sequence + 1] - p.query_start[sequence]) * p.group();
    if (rows <= args.others && p.fits(sequence)) continue;
#pragma unroll 1
    for (int64_t first = own * 16 * kRowTiles; first < rows; first += args.tiles * 16 * kRowTiles)
      tile.run(sequence, key_head, first, span);
  }
}

}  // namespace
}  // namespace planq::attention
