// Attention of few queries on CUDA: a block has the rows of one sequence whose heads share a key
// head, 16 at most, and goes through spans of their keys. All scores of a span come first, then the
// powers of all, then all values. Keys and values arrive by asynchronous copies some stages ahead.
//
// Steps, their order and all roundings are those of tiles.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/mbarrier.cuh"
#include "cuda/mma.cuh"
#include "cuda/pairs.cuh"
#include "ops/affine/affine.h"
#include "ops/attention/attention/tiles.cuh"

namespace planq::attention {
namespace {

// Warps that multiply; one more adds powers, which is a long chain, while they do.
constexpr int kMultiplyThreads = 256, kFewWarps = kMultiplyThreads / cuda::kWarp;
constexpr int kFewThreads = kMultiplyThreads + cuda::kWarp;
constexpr int kMultiplierName = 1;  // of the barrier of those that multiply
constexpr int kMostFewRows = 16;
constexpr int kStageKeys = 64;
// Stages, so that two blocks share a multiprocessor where columns are 128.
PLANQ_HD constexpr int stages_for(int rows) { return rows <= 4 ? 4 : 3; }
constexpr int kSpan = math::kSpanKeys, kSpanBlocks = kSpan / math::kBlockKeys;
static_assert(kSpanBlocks == kFewWarps);
// Between rows of shared memory, beyond their own: eight rows then lie in different banks.
constexpr int kSkewBytes = 16, kFewScorePitch = kSpan + 8, kFewWeightPitch = kSpan + 8;

constexpr int kNowhere = INT32_MIN;
constexpr int kEight = 8;

// A block's shared memory.
template <class T>
struct FewMemory : CarvedMemory {
  float *scores, *block_most, *fading;  // of each row: its keys; the blocks of the span
  T *query, *weights;
  // Of each key of the span: where it and its value lie, in eights of elements; kNowhere: not in
  // the cache.
  int *key_at, *value_at;
  float *key_scale, *value_scale;  // of each key
  float* state;                    // of each row: M and L of the span, then what merges it
  int* lost;                       // of each row
  std::uint8_t* stages;
  int query_pitch, stage_pitch;

  PLANQ_HD FewMemory(void* from, int rows, int columns, int of_values, int code_bytes,
                     bool measured)
      : CarvedMemory(from),
        query_pitch(columns + kSkewBytes / 2),
        stage_pitch((columns > of_values ? columns : of_values) * code_bytes + kSkewBytes) {
    stages = take<std::uint8_t>(stages_for(rows) * kStageKeys * stage_pitch);
    scores = take<float>(rows * kFewScorePitch);
    weights = take<T>(rows * kFewWeightPitch);
    query = take<T>(rows * query_pitch);
    key_at = take<int>(kSpan);
    value_at = take<int>(kSpan);
    key_scale = take<float>(measured ? kSpan : 0);
    value_scale = take<float>(measured ? kSpan : 0);
    block_most = take<float>(rows * kSpanBlocks);
    fading = take<float>(rows * kSpanBlocks);
    state = take<float>(rows * 6);
    lost = take<int>(rows);
  }
};

// Two codes, in the low bytes, as numbers of T.
template <class T, DType kCode>
__device__ __forceinline__ std::uint32_t pair_of_codes(std::uint32_t codes) {
  const auto low = static_cast<std::uint8_t>(codes), high = static_cast<std::uint8_t>(codes >> 8);
  if constexpr (kCode == DType::Int8)
    return cuda::pair_of(static_cast<float>(static_cast<std::int8_t>(low)),
                         static_cast<float>(static_cast<std::int8_t>(high)), T{});
#if defined(__CUDA_ARCH__)
  std::uint32_t halves;
  if constexpr (kCode == DType::Float8E4M3FN)
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(codes)));
  else
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(codes)));
  if constexpr (std::is_same_v<T, math::Half>) return halves;
  return cuda::pair_of(cuda::of_pair<math::Half>(halves, 0), cuda::of_pair<math::Half>(halves, 1),
                       T{});
#else
  return cuda::pair_of(math::float8_value<float>(low, kCode),
                       math::float8_value<float>(high, kCode), T{});
#endif
}

// A score with the scale of its key, where it has one, and below the cap. Not inlined: a short
// launch waits for every instruction that it fetches, and few need these.
__device__ __noinline__ float adjusted_score(float x, float scale, float cap, float inverse_cap) {
  x = x * scale;
  if (!(cap > 0)) return x;
  const float share = x * inverse_cap;
  return cap * math::tanh(share);
}

// kRows: 4, 8 or 16. kColumnTiles: the most columns of values that a warp has, by eight.
template <class T, DType kCache, int kRows, int kColumnTiles>
class FewRowsTile {
 public:
  static constexpr bool kCodes = is_code(kCache);
  static constexpr int kBytes = kCodes ? 1 : 2;
  static constexpr int kStages = stages_for(kRows);
  static constexpr int kLaneSums = kRows > 8 ? 4 : 2;  // of a tile
  using Memory = FewMemory<T>;

  __device__ __forceinline__ FewRowsTile(const TileArgs& args, const Memory& memory)
      : args_(args),
        p_(args.p),
        memory_(memory),
        warp_(static_cast<int>(threadIdx.x) / cuda::kWarp),
        lane_(static_cast<int>(threadIdx.x) % cuda::kWarp) {}

  // `span`: the only one, or -1.
  __device__ __forceinline__ void run(int64_t sequence, int64_t key_head, int64_t span) {
    if (!open(sequence, key_head)) return;
    const int from = span < 0 ? seen_.first / kSpan : static_cast<int>(span);
    const int to = span < 0 ? (seen_.end + kSpan - 1) / kSpan : from + 1;
    if (seen_.first < seen_.end) {
      bool any = false;
      for (int each = from; each < to; ++each) {
        if (!sees(each)) continue;
        if (!any) load_query();
        any = true;
        add_span(each);
        if (span < 0)
          merge_span();
        else
          store_state(each);
      }
    }
    if (span < 0) finish();
    __syncthreads();
  }

 private:
  struct Seen {
    int first, end;
  };
  using Sums = float[kColumnTiles][kLaneSums];

  // --- Rows

  // Returns whether there are any that are this kernel's.
  __device__ __forceinline__ bool open(int64_t sequence, int64_t key_head) {
    sequence_ = sequence;
    key_head_ = key_head;
    first_token_ = p_.query_start[sequence];
    const int64_t rows = (p_.query_start[sequence + 1] - first_token_) * p_.group();
    if (rows == 0 || rows > kRows || args_.is_lost(sequence, key_head)) return false;
    rows_ = static_cast<int>(rows);
    tokens_ = rows_ / static_cast<int>(p_.group());
    factor_ = p_.factor(key_head);
    length_ = p_.key_length[sequence];
    // Keys move on from token to token. Causal ones before the first key see none.
    const Seen last = seen(tokens_ - 1);
    const int first = p_.causal && tokens_ > length_ ? tokens_ - length_ : 0;
    seen_ = first < tokens_ && length_ > 0 ? Seen{seen(first).first, last.end} : Seen{0, 0};
    all_ = {last.first, seen(0).end};
    for (int i = threadIdx.x; i < kRows; i += kFewThreads) {
      memory_.lost[i] = 0;
      memory_.state[6 * i + 2] = -math::detail::infinity();
      memory_.state[6 * i + 3] = 0;
    }
    clear(merged_);
    __syncthreads();
    return true;
  }
  // What a token of the sequence sees.
  __device__ __forceinline__ Seen seen(int token) const {
    const int position = length_ - (tokens_ - token);
    const int first = p_.window > 0 ? position - static_cast<int>(p_.window) + 1 : 0;
    return {first < 0 ? 0 : first, p_.causal && position + 1 < length_ ? position + 1 : length_};
  }
  // One token is what there mostly is: a division takes long.
  __device__ __forceinline__ int token_in_sequence(int row) const {
    return tokens_ == 1 ? 0 : row / static_cast<int>(p_.group());
  }
  __device__ __forceinline__ Seen seen_of_row(int row) const {
    return seen(token_in_sequence(row));
  }
  __device__ __forceinline__ bool sees(int span) const {
    return seen_.first < (span + 1) * kSpan && seen_.end > span * kSpan;
  }
  __device__ __forceinline__ int64_t token_of(int row) const {
    return first_token_ + token_in_sequence(row);
  }
  __device__ __forceinline__ int64_t head_of(int row) const {
    return key_head_ * p_.group() + row - token_in_sequence(row) * static_cast<int>(p_.group());
  }

  __device__ __forceinline__ void load_query() {
    const int units = static_cast<int>(p_.key.columns) / 8;
    const auto* const query = static_cast<const T*>(p_.query);
    for (int i = threadIdx.x; i < kRows * units; i += kFewThreads) {
      const int r = i / units, column = i % units * 8;
      uint4 eight = {0, 0, 0, 0};
      if (r < rows_)
        eight = *reinterpret_cast<const uint4*>(query + token_of(r) * p_.query_token +
                                                head_of(r) * p_.query_head + column);
      *reinterpret_cast<uint4*>(memory_.query + r * memory_.query_pitch + column) = eight;
    }
  }

  // --- A span

  __device__ __forceinline__ void add_span(int span) {
    span_ = span * kSpan;
    first_ = seen_.first > span_ ? seen_.first - span_ : 0;
    end_ = seen_.end - span_ < kSpan ? seen_.end - span_ : kSpan;
    const int stages = (end_ + kStageKeys - 1) / kStageKeys - first_ / kStageKeys;
    find_places();
    __syncthreads();
    issued_ = 0;
    const bool multiplies = warp_ < kFewWarps;
    if (multiplies) {
      for (int i = 0; i < kStages - 1; ++i) issue(stages);
      for (int i = 0; i < stages; ++i) {
        const int held = next_stage(stages);
        score(held, first_ / kStageKeys + i);
      }
    }
    __syncthreads();
    find_most();
    __syncthreads();
    follow_most();
    __syncthreads();
    take_powers();
    __syncthreads();
    clear(found_);
    if (multiplies) {
      for (int i = 0; i < stages; ++i) {
        const int at = first_ / kStageKeys + i;
        const int held = next_stage(stages);
        if (i == 0 || at % (math::kBlockKeys / kStageKeys) == 0) fade(at * kStageKeys);
        add_values(held, at * kStageKeys);
      }
    } else {
      for (int from = 0; from < rows_; from += 8) add_powers(from);
    }
    __syncthreads();
  }

  // Where each key of the span lies, and its scales. Rows that see one that the cache lacks are
  // lost.
  __device__ __forceinline__ void find_places() {
    const auto page_size = static_cast<std::uint32_t>(p_.page_size);
    for (int j = first_ + static_cast<int>(threadIdx.x); j < end_; j += kFewThreads) {
      Place at{sequence_, span_ + j};
      if (p_.table) {
        const auto key = static_cast<std::uint32_t>(span_ + j), number = key / page_size;
        const std::int32_t page = p_.table[sequence_ * p_.table_row + number];
        at = {page < p_.pages ? page : -1, static_cast<int>(key - number * page_size)};
      }
      const bool lacks = at.page < 0;
      memory_.key_at[j] = lacks ? kNowhere : eights_of(p_.key, at);
      memory_.value_at[j] = lacks ? kNowhere : eights_of(p_.value, at);
      if (p_.measured) {
        memory_.key_scale[j] = lacks ? 1 : p_.scale_of(p_.key, at, key_head_);
        memory_.value_scale[j] = lacks ? 1 : p_.scale_of(p_.value, at, key_head_);
      }
      if (!lacks) continue;
      for (int r = 0; r < rows_; ++r) {
        const Seen keys = seen_of_row(r);
        if (keys.first <= span_ + j && span_ + j < keys.end) memory_.lost[r] = 1;
      }
    }
  }
  __device__ __forceinline__ int eights_of(const Side& side, Place at) const {
    return static_cast<int>((at.page * side.page + at.place * side.place + key_head_ * side.head) /
                            kEight);
  }

  // Begins to copy the next stage; first those of keys, then those of values.
  __device__ __forceinline__ void issue(int stages) {
    if (issued_ < stages)
      copy(p_.key, memory_.key_at, issued_);
    else if (issued_ < 2 * stages)
      copy(p_.value, memory_.value_at, issued_ - stages);
    ++issued_;
    cuda::end_copy_group();
  }
  __device__ __forceinline__ void copy(const Side& side, const int* places, int number) const {
    const int units = static_cast<int>(side.columns) * kBytes / 16;
    const int rows = kMultiplyThreads / units, more = kMultiplyThreads - rows * units;
    const int from = (first_ / kStageKeys + number) * kStageKeys;
    std::uint8_t* const to = stage(issued_ % kStages);
    int row = static_cast<int>(threadIdx.x) / units;
    int unit = static_cast<int>(threadIdx.x) - row * units;
#pragma unroll 4
    while (row < kStageKeys) {
      const int j = from + row;
      const int at = first_ <= j && j < end_ ? places[j] : kNowhere;
      std::uint8_t* const own = to + row * memory_.stage_pitch + unit * 16;
      if (at != kNowhere)
        cuda::copy_async(cuda::shared_address_of(own),
                         side.data + static_cast<int64_t>(at) * (kEight * kBytes) + unit * 16);
      else
        *reinterpret_cast<uint4*>(own) = {0, 0, 0, 0};
      row += rows, unit += more;
      if (unit >= units) unit -= units, ++row;
    }
  }
  __device__ __forceinline__ std::uint8_t* stage(int i) const {
    return memory_.stages + i * kStageKeys * memory_.stage_pitch;
  }
  // Waits for the oldest stage under way, and begins another.
  __device__ __forceinline__ int next_stage(int stages) {
    cuda::wait_for_copy_groups<kStages - 2>();
    multiplier_barrier();
    const int held = (issued_ - (kStages - 1)) % kStages;
    issue(stages);
    return held;
  }

  __device__ __forceinline__ static void multiplier_barrier() {
    cuda::named_barrier_wait(kMultiplierName, kMultiplyThreads);
  }

  // --- Scores

  // Products with the 64 keys of a stage, eight of which each warp has.
  __device__ __forceinline__ void score(int held, int number) {
    const int g = lane_ / 4, t = lane_ % 4;
    const T* const query = memory_.query + own_row() * memory_.query_pitch + (kCodes ? 4 : 2) * t;
    const std::uint8_t* const key = stage(held) + (warp_ * 8 + g) * memory_.stage_pitch + 4 * t;
    float sums[4] = {};
    const int columns = static_cast<int>(p_.key.columns);
#pragma unroll 8
    for (int k = 0; k < columns; k += 16) {
      std::uint32_t a[4], b[2];
      load_step(a, query + k, memory_.query_pitch);
      if constexpr (kCodes) {
        const std::uint32_t codes = word_of(key + k);
        b[0] = pair_of_codes<T, kCache>(codes), b[1] = pair_of_codes<T, kCache>(codes >> 16);
      } else {
        b[0] = word_of(key + 2 * k), b[1] = word_of(key + 2 * k + 16);
      }
      cuda::multiply_add_floats<T>(sums, a, b[0], b[1]);
    }
    float* const to = memory_.scores + g * kFewScorePitch + number * kStageKeys + warp_ * 8 + 2 * t;
    if (g < kRows) *reinterpret_cast<float2*>(to) = {sums[0], sums[1]};
    if constexpr (kRows > 8)
      *reinterpret_cast<float2*>(to + 8 * kFewScorePitch) = {sums[2], sums[3]};
  }
  // The row of a step's factor that this lane reads. Where there are four, others repeat them, and
  // nobody reads what they come to.
  __device__ __forceinline__ int own_row() const { return lane_ / 4 % kRows; }
  __device__ __forceinline__ static std::uint32_t word_of(const void* from) {
    return *static_cast<const std::uint32_t*>(from);
  }
  // A step of the rows' factor. Where the other one is codes, a lane has four neighbours of it, and
  // so of this one: the order inside of a step is free.
  __device__ __forceinline__ static void load_step(std::uint32_t (&a)[4], const T* own, int pitch) {
    constexpr int kNext = kCodes ? 2 : 8;
    a[0] = word_of(own), a[2] = word_of(own + kNext);
    a[1] = a[3] = 0;
    if constexpr (kRows > 8)
      a[1] = word_of(own + 8 * pitch), a[3] = word_of(own + 8 * pitch + kNext);
  }

  // --- Powers of scores: a warp has a block of keys, a lane four neighbours of it

  __device__ __forceinline__ bool has_block(int block) const {
    return block * math::kBlockKeys < end_ && (block + 1) * math::kBlockKeys > first_;
  }
  // The largest score of each row, which are adjusted here; -inf where a row does not see the key.
  __device__ __forceinline__ void find_most() {
    if (warp_ >= kFewWarps || !has_block(warp_)) return;
    const int from = warp_ * math::kBlockKeys + 4 * lane_;
    const bool adjusts = p_.scales_scores || p_.cap > 0;
    const float scale = p_.scales_scores ? p_.head_scale(p_.key, key_head_) : 1.0f;
#pragma unroll 2
    for (int r = 0; r < rows_; ++r) {
      auto* const own = reinterpret_cast<float4*>(memory_.scores + r * kFewScorePitch + from);
      const float4 four = *own;
      float x[4] = {four.x, four.y, four.z, four.w};
      const Seen keys = seen_of_row(r);
      float most = -math::detail::infinity();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = span_ + from + i;
        if (adjusts) x[i] = adjusted(x[i], scale, from + i);
        x[i] = keys.first <= key && key < keys.end ? x[i] : -math::detail::infinity();
        most = larger_or_nan(most, x[i]);
      }
      *own = {x[0], x[1], x[2], x[3]};
#pragma unroll
      for (int step = 1; step < cuda::kWarp; step *= 2)
        most = larger_or_nan(most, __shfl_xor_sync(cuda::kAllLanes, most, step));
      if (lane_ == 0) memory_.block_most[r * kSpanBlocks + warp_] = most;
    }
  }
  // `scale`: of the head's keys.
  __device__ __forceinline__ float adjusted(float x, float scale, int j) const {
    const bool measured = p_.scales_scores && p_.measured;
    return adjusted_score(x, measured ? memory_.key_scale[j] : scale, p_.cap, p_.inverse_cap);
  }
  // M of each row in each block, and what earlier sums fade by.
  __device__ __forceinline__ void follow_most() {
    const int r = static_cast<int>(threadIdx.x);
    if (r >= rows_) return;
    float most = -math::detail::infinity();
    bool lost = false;
#pragma unroll
    for (int block = 0; block < kSpanBlocks; ++block) {
      if (!has_block(block)) continue;
      const float own = memory_.block_most[r * kSpanBlocks + block], scaled = own * factor_;
      lost = lost || math::is_lost(own) || math::is_lost(scaled);
      const float next = scaled > most ? scaled : most;
      memory_.fading[r * kSpanBlocks + block] = math::fading(most, next);
      memory_.block_most[r * kSpanBlocks + block] = next;
      most = next;
    }
    memory_.state[6 * r] = most;
    if (lost) memory_.lost[r] = 1;
  }
  __device__ __forceinline__ void take_powers() {
    if (warp_ >= kFewWarps || !has_block(warp_)) return;
    const int from = warp_ * math::kBlockKeys + 4 * lane_;
#pragma unroll 2
    for (int r = 0; r < rows_; ++r) {
      auto* const own = reinterpret_cast<float4*>(memory_.scores + r * kFewScorePitch + from);
      const float4 four = *own;
      const float most = memory_.block_most[r * kSpanBlocks + warp_];
      float x[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (float& each : x) each = math::fused(each, factor_, -most);
      math::powers_of_scores(x);
      *own = {x[0], x[1], x[2], x[3]};
      // What a row does not see keeps its weight of 0: the scale may be infinite, or not be there.
      if (kCodes && p_.measured) {
        const Seen keys = seen_of_row(r);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (keys.first <= span_ + from + i && span_ + from + i < keys.end)
            x[i] = x[i] * memory_.value_scale[from + i];
      }
      *reinterpret_cast<uint2*>(memory_.weights + r * kFewWeightPitch + from) = {
          cuda::pair_of(x[0], x[1], T{}), cuda::pair_of(x[2], x[3], T{})};
    }
    // Rows that there are not weigh nothing.
    for (int r = rows_; r < kRows; ++r)
      *reinterpret_cast<uint2*>(memory_.weights + r * kFewWeightPitch + from) = {0, 0};
  }
  // L of each row: four lanes have it together.
  __device__ __forceinline__ void add_powers(int from) {
    const int r = from + lane_ / 4;
    float sum = 0;
    if (r < rows_)
#pragma unroll 1
      for (int block = 0; block < kSpanBlocks; ++block) {
        if (!has_block(block)) continue;
        sum = sum * memory_.fading[r * kSpanBlocks + block];
        const float* const own =
            memory_.scores + r * kFewScorePitch + block * math::kBlockKeys + lane_ % 4 * 2;
#pragma unroll
        for (int i = 0; i < math::kBlockKeys / 8; ++i) {
          const float2 two = *reinterpret_cast<const float2*>(own + 8 * i);
          sum = sum + two.x;
          sum = sum + two.y;
        }
      }
    const float half = sum + __shfl_xor_sync(cuda::kAllLanes, sum, 1);
    const float whole = half + __shfl_xor_sync(cuda::kAllLanes, half, 2);
    if (lane_ % 4 == 0 && r < rows_) memory_.state[6 * r + 1] = whole;
  }

  // --- Values

  // The first column of a warp's tile, and column n of that.
  __device__ __forceinline__ int column_of(int tile, int n) const {
    if constexpr (kCodes) return 32 * (warp_ + kFewWarps * (tile / 4)) + 4 * n + tile % 4;
    return (warp_ + kFewWarps * tile) * 8 + n;
  }
  // Calls use(tile, i, row, column) for each sum of this lane that there is.
  template <class Use>
  __device__ __forceinline__ void each_sum(const Use& use) const {
    if (warp_ >= kFewWarps) return;
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      if (column_of(c, 0) >= p_.value.columns) continue;
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i) {
        const int column = column_of(c, lane_ % 4 * 2 + i % 2);
        // Tiles of codes are strewn over 32 columns, of which there may be fewer.
        if (kCodes && column >= p_.value.columns) continue;
        use(c, i, lane_ / 4 + i / 2 * 8, column);
      }
    }
  }
  __device__ __forceinline__ static void clear(Sums& sums) {
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c)
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i) sums[c][i] = 0;
  }
  __device__ __forceinline__ void fade(int from) {
    each_sum([&](int c, int i, int row, int) {
      if (row < rows_)
        found_[c][i] = found_[c][i] * memory_.fading[row * kSpanBlocks + from / math::kBlockKeys];
    });
  }
  __device__ __forceinline__ void add_values(int held, int from) {
    // Where rows see other keys, a value that is NaN or infinite meets those that see it alone.
    const bool differ = from + span_ < all_.first || from + span_ + kStageKeys > all_.end;
    const bool odd =
        differ && cuda::named_barrier_any(kMultiplierName, kMultiplyThreads, has_odd_values(held));
    if (!odd) {
      multiply_values(held, from, -1);
      return;
    }
#pragma unroll 1
    for (int r = 0; r < rows_; ++r) multiply_values(held, from, r);
  }
  __device__ __forceinline__ bool has_odd_values(int held) const {
    const int units = static_cast<int>(p_.value.columns) * kBytes / 4;
    bool odd = false;
    for (int i = threadIdx.x; i < kStageKeys * units; i += kMultiplyThreads) {
      const int row = i / units;
      const std::uint32_t word =
          word_of(stage(held) + row * memory_.stage_pitch + (i - row * units) * 4);
      if constexpr (kCodes)
        odd = odd || is_odd(pair_of_codes<T, kCache>(word)) ||
              is_odd(pair_of_codes<T, kCache>(word >> 16));
      else
        odd = odd || is_odd(word);
    }
    return odd;
  }
  __device__ __forceinline__ static bool is_odd(std::uint32_t pair) {
    constexpr std::uint32_t kTop = std::is_same_v<T, math::Half> ? 0x7C00u : 0x7F80u;
    return (pair & kTop) == kTop || (pair >> 16 & kTop) == kTop;
  }

  // Adds values times weights to all rows, or to one of them.
  __device__ __forceinline__ void multiply_values(int held, int from, int only) {
    const T* const weights =
        memory_.weights + own_row() * kFewWeightPitch + from + (kCodes ? 4 : 2) * (lane_ % 4);
    const Seen keys = only < 0 ? Seen{} : seen_of_row(only);
#pragma unroll
    for (int two = 0; two < kStageKeys; two += 32) {
      std::uint32_t a[2][4];
#pragma unroll
      for (int step = 0; step < 2; ++step)
        load_step(a[step], weights + two + 16 * step, kFewWeightPitch);
#pragma unroll
      for (int c = 0; c < kColumnTiles; c += kCodes ? 4 : 1) {
        if (column_of(c, 0) >= p_.value.columns) continue;
        std::uint32_t b[kCodes ? 4 : 1][4];
        load_values(b, held, two, c);
#pragma unroll
        for (int i = 0; i < (kCodes ? 4 : 1); ++i) {
          if (only >= 0) hide(b[i], keys.first - span_ - from - two, keys.end - span_ - from - two);
          add_steps(found_[c + i], a, b[i], only);
        }
      }
    }
  }
  // Two steps of tiles of values, from key `two` of the stage on.
  template <int kTiles>
  __device__ __forceinline__ void load_values(std::uint32_t (&b)[kTiles][4], int held, int two,
                                              int tile) const {
    const std::uint8_t* const from = stage(held) + two * memory_.stage_pitch;
    if constexpr (!kCodes) {
      cuda::load_transposed_matrices(
          b[0],
          cuda::shared_address_of(from + lane_ * memory_.stage_pitch + column_of(tile, 0) * 2));
    } else {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[i] = word_of(from + (16 * step + 4 * (lane_ % 4) + i) * memory_.stage_pitch +
                             column_of(tile, lane_ / 4));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t own = i + 0x10 * (4 + i);  // byte i of either word
          b[i][2 * step] = pair_of_codes<T, kCache>(__byte_perm(words[0], words[1], own));
          b[i][2 * step + 1] = pair_of_codes<T, kCache>(__byte_perm(words[2], words[3], own));
        }
      }
    }
  }
  // Makes 0 of values whose keys are not between `first` and `end` of the two steps.
  __device__ __forceinline__ void hide(std::uint32_t (&b)[4], int first, int end) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int key =
            kCodes ? i / 2 * 16 + lane_ % 4 * 4 + i % 2 * 2 + e : i * 8 + lane_ % 4 * 2 + e;
        if (key < first || key >= end) b[i] &= e == 0 ? 0xFFFF0000u : 0x0000FFFFu;
      }
  }
  __device__ __forceinline__ void add_steps(float (&found)[kLaneSums],
                                            const std::uint32_t (&a)[2][4],
                                            const std::uint32_t (&b)[4], int only) const {
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < kLaneSums; ++i) sums[i] = found[i];
    cuda::multiply_add_floats<T>(sums, a[0], b[0], b[1]);
    cuda::multiply_add_floats<T>(sums, a[1], b[2], b[3]);
#pragma unroll
    for (int i = 0; i < kLaneSums; ++i)
      if (only < 0 || only == lane_ / 4 + i / 2 * 8) found[i] = sums[i];
  }

  // --- Spans, and the end

  // Of a row's state: M and L of the span, those of all so far, and what multiplies the values.
  __device__ __forceinline__ void merge_span() {
    const int r = static_cast<int>(threadIdx.x);
    if (r < rows_) {
      float* const state = memory_.state + 6 * r;
      const math::Merging merging(state[2], state[0]);
      state[3] = merging.sum(state[3], state[1]);
      state[2] = merging.most;
      state[4] = merging.first, state[5] = merging.second;
    }
    __syncthreads();
    each_sum([&](int c, int i, int row, int) {
      if (row >= rows_) return;
      const float before = merged_[c][i] * memory_.state[6 * row + 4];
      const float own = found_[c][i] * memory_.state[6 * row + 5];
      merged_[c][i] = before + own;
    });
    __syncthreads();
  }
  __device__ __forceinline__ void store_state(int span) {
    const int r = static_cast<int>(threadIdx.x);
    if (r < rows_) {
      float* const state = args_.state(token_of(r), head_of(r), span);
      state[0] = memory_.lost[r] ? math::canonical_nan<float>() : memory_.state[6 * r];
      state[1] = memory_.state[6 * r + 1];
    }
#pragma unroll
    for (int half = 0; half < kLaneSums / 2; ++half) {
      const int own = lane_ / 4 + 8 * half;
      if (own >= rows_) continue;
      float* const state = args_.state(token_of(own), head_of(own), span) + 2;
      each_sum([&](int c, int i, int, int column) {
        if (i / 2 == half) state[column] = found_[c][i];
      });
    }
  }
  // Values go through the room of scores, so that the code of an output is there once.
  __device__ __forceinline__ void finish() {
    __syncthreads();
    each_sum([&](int c, int i, int row, int column) {
      if (row < rows_) memory_.scores[row * kFewScorePitch + column] = merged_[c][i];
    });
    __syncthreads();
    const float scale = p_.head_scale(p_.value, key_head_);
    const int columns = static_cast<int>(p_.value.columns);
#pragma unroll 1
    for (int row = warp_; row < rows_; row += kFewThreads / cuda::kWarp) {
      const float* const state = memory_.state + 6 * row;
      const int64_t token = token_of(row), head = head_of(row);
      const math::RowEnd end(state[2], state[3], memory_.lost[row] != 0, args_.sink_of(head));
      const Seen keys = seen_of_row(row);
      if (p_.lse && lane_ == 0) p_.lse[token * p_.lse_token + head] = math::narrow<float>(end.lse);
#pragma unroll 1
      for (int column = lane_; column < columns; column += cuda::kWarp) {
        const float x = memory_.scores[row * kFewScorePitch + column];
        const float y = end.output(x, p_.scales_outputs() ? &scale : nullptr);
        args_.store(token, head, column,
                    end.lost                ? math::canonical_nan<float>()
                    : keys.first < keys.end ? y
                                            : 0.0f);
      }
    }
  }

  const TileArgs& args_;
  const Layout& p_;
  const Memory& memory_;
  const int warp_, lane_;
  int64_t sequence_, key_head_, first_token_;
  int tokens_, rows_, length_;
  Seen seen_, all_;         // keys that some row sees; that all see
  int span_, first_, end_;  // the span's first key; keys of it that some row sees
  int issued_;
  float factor_;
  Sums found_, merged_;
};

// What there is to do, in this order: sequences, key heads, spans. Where spans have no blocks of
// their own, tokens that no sequence has, or a lost one, are one more sequence.
template <class T, DType kCache, int kRows, int kColumnTiles>
__global__ void __launch_bounds__(kFewThreads, !is_code(kCache) && kColumnTiles > 2 ? 1 : 2)
    attend_few(const __grid_constant__ TileArgs args) {
  const Layout& p = args.p;
  const FewMemory<T> memory(cuda::dynamic_shared(), kRows, static_cast<int>(p.key.columns),
                            static_cast<int>(p.value.columns), is_code(kCache) ? 1 : 2, p.measured);
  FewRowsTile<T, kCache, kRows, kColumnTiles> rows(args, memory);
  cuda::wait_for_previous();
  const bool right = *args.starts_are_right != 0;
#pragma unroll 1
  for (int64_t work = blockIdx.x; work < args.count; work += gridDim.x) {
    const int64_t of_span = args.states ? work / args.spans : work;
    const int64_t span = args.states ? work % args.spans : -1;
    const int64_t sequence = of_span / p.key_heads, key_head = of_span % p.key_heads;
    if (sequence == p.batch)
      fill_rest(args, right, key_head);
    else if (right)
      rows.run(sequence, key_head, span);
  }
}

}  // namespace
}  // namespace planq::attention
