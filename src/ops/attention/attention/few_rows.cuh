// Attention of few queries on CUDA: a cluster of blocks has the rows of one sequence whose heads
// share a key head, 16 at most, and goes through spans of their keys. All scores of a span come
// first, then the powers of all, then all values. Each block makes the scores of some stages of
// keys for all of them, and weighs its own columns of the values; what is between is so little that
// each does all of it. Keys and values arrive by asynchronous copies some stages ahead.
//
// Steps, their order and all roundings are those of tiles.cuh. How many blocks a cluster has makes
// no difference to them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/divider.cuh"
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
constexpr int kMostFewBlocks = 8;  // of a cluster; every GPU that has clusters takes as many
constexpr int kStageKeys = 64;     // and so many values, or a multiple of them
// Stages, so that two blocks share a multiprocessor where columns are 128.
PLANQ_HD constexpr int stages_for(int rows) { return rows <= 4 ? 4 : 3; }
constexpr int kSpan = math::kSpanKeys, kSpanBlocks = kSpan / math::kBlockKeys;
static_assert(kSpanBlocks == kFewWarps);
// Between rows of shared memory, beyond their own: eight rows then lie in different banks.
constexpr int kSkewBytes = 16, kFewScorePitch = kSpan + 8, kFewWeightPitch = kSpan + 8;

constexpr int kNowhere = INT32_MIN;
constexpr int kEight = 8;

// What the kernel knows of the layout, in as few bits as it has room in: a short launch waits for
// every instruction that it fetches, and 64 bits take several.
struct FewSide {
  const std::uint8_t* data = nullptr;
  int page = 0, place = 0, head = 0;  // strides in eights of elements
  int columns = 0;
  // How threads copy rows, of which a block may have some columns: by units of 16 bytes. The next
  // unit of a thread is so many rows on, and units more.
  cuda::Divider units;
  int rows = 0, more = 0;
};
struct FewArgs : TileArgs {
  FewSide key, value;
  cuda::Divider group, of_key_heads, of_spans, of_page;
  int batch = 0, most_tokens = 0, most_keys = 0, pages = 0, window = 0;
  int block_shift = 0;                  // of the number of blocks of a cluster
  int block_columns = 0;                // of the values, that a block has
  std::int32_t* found_right = nullptr;  // the kernel checks starts itself, and says this

  explicit FewArgs(const TileArgs& shared) : TileArgs(shared) {}
};

// A block's shared memory.
template <class T>
struct FewMemory : CarvedMemory {
  float *scores, *block_most, *fading;  // of each row: its keys; the blocks of the span
  T *query, *weights;
  // Of each key of the span: where it and its value lie, in eights of elements; kNowhere: not in
  // the cache.
  int *key_at, *value_at;
  float *key_scale, *value_scale;  // of each key
  float* state;                    // of each row: M and L of the last span, and of those before it
  int* lost;                       // of each row
  cuda::Barrier* sent;             // counts scores that the cluster sends
  std::uint8_t* stages;
  int query_pitch, key_pitch, value_pitch;  // the latter two in bytes
  int stage_bytes, stage_values;

  // `of_values`: the columns of values that a block has.
  PLANQ_HD FewMemory(void* from, int rows, int columns, int of_values, int code_bytes,
                     bool measured)
      : CarvedMemory(from),
        query_pitch(columns + kSkewBytes / 2),
        key_pitch(columns * code_bytes + kSkewBytes),
        value_pitch(of_values * code_bytes + kSkewBytes) {
    const int times = key_pitch / value_pitch;
    stage_values = kStageKeys * (times > 1 ? times : 1);
    const int of_keys = kStageKeys * key_pitch, of_those = stage_values * value_pitch;
    stage_bytes = of_keys > of_those ? of_keys : of_those;
    stages = take<std::uint8_t>(stages_for(rows) * stage_bytes);
    scores = take<float>(rows * kFewScorePitch);
    weights = take<T>(rows * kFewWeightPitch);
    query = take<T>(rows * query_pitch);
    key_at = take<int>(kSpan);
    value_at = take<int>(kSpan);
    key_scale = take<float>(measured ? kSpan : 0);
    value_scale = take<float>(measured ? kSpan : 0);
    block_most = take<float>(rows * kSpanBlocks);
    fading = take<float>(rows * kSpanBlocks);
    state = take<float>(rows * 4);
    lost = take<int>(rows);
    sent = take<cuda::Barrier>(1);
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

// The largest number of a warp, or NaN where one of them is. Integers in the order of numbers, all
// NaN above them, take one instruction.
__device__ __forceinline__ float largest_of_warp(float x) {
  const auto bits = static_cast<std::int32_t>(__float_as_uint(x));
  const std::int32_t own = x != x ? INT32_MAX : bits ^ (bits >> 31 & INT32_MAX);
  const std::int32_t most = cuda::warp_max(own);
  return __uint_as_float(static_cast<std::uint32_t>(most ^ (most >> 31 & INT32_MAX)));
}
// Once for both of its uses.
__device__ __noinline__ math::Merging merging_of_states(float one, float other) {
  return {one, other};
}

// kRows: 4, 8 or 16. kColumnTiles: the most columns of values that a warp has, by eight.
template <class T, DType kCache, int kRows, int kColumnTiles>
class FewRowsTile {
 public:
  static constexpr bool kCodes = is_code(kCache);
  static constexpr int kBytes = kCodes ? 1 : 2;
  static constexpr int kStages = stages_for(kRows);
  static constexpr int kLaneSums = kRows > 8 ? 4 : 2;  // of a tile
  static constexpr int kHalves = kLaneSums / 2;        // rows of a lane
  using Memory = FewMemory<T>;

  __device__ __forceinline__ FewRowsTile(const FewArgs& args, const Memory& memory)
      : args_(args),
        p_(args.p),
        memory_(memory),
        warp_(static_cast<int>(threadIdx.x) / cuda::kWarp),
        lane_(static_cast<int>(threadIdx.x) % cuda::kWarp),
        rank_(args.block_shift > 0 ? cuda::cluster_rank() : 0),
        first_column_(rank_ * args.block_columns),
        columns_(min(args.value.columns - first_column_, args.block_columns)),
        key_copy_(args.key),
        value_copy_(args.value) {}

  // Before anything else.
  __device__ __forceinline__ void begin() const {
    const auto i = static_cast<int>(threadIdx.x);
    if (i < kRows) {
      memory_.lost[i] = 0;
      float* const state = memory_.state + kStateSize * i;
      state[0] = state[2] = -math::detail::infinity();
      state[1] = state[3] = 0;
    }
    if (is_cluster() && i == 0) {
      memory_.sent->init(1);
      cuda::publish_barriers();
    }
    if (is_cluster()) {
      __syncwarp();
      cuda::cluster_arrive_unordered();
    }
  }
  // Before scores are sent: all blocks of the cluster have begun.
  __device__ __forceinline__ void wait_for_cluster() const {
    if (is_cluster()) cuda::cluster_wait();
  }
  // `span`: the only one, or -1.
  __device__ __forceinline__ void run(int sequence, int key_head, int span) {
    if (!open(sequence, key_head)) return;
    const int from = span < 0 ? seen_.first / kSpan : span;
    const int to = span < 0 ? (seen_.end + kSpan - 1) / kSpan : from + 1;
    bool any = false;
    if (seen_.first < seen_.end)
#pragma unroll 1
      for (int each = from; each < to; ++each) {
        if (!sees(each)) continue;
        if (any) {
          merge_span();
          // Scores of this span may come where those of the last one were.
          if (is_cluster()) cuda::cluster_barrier_unordered();
        } else {
          load_query();
        }
        any = true;
        add_span(each);
        if (span >= 0) store_state(each);
      }
    if (span < 0) finish();
  }

 private:
  struct Seen {
    int first, end;
  };
  using Sums = float[kColumnTiles][kLaneSums];
  // What a thread copies first of rows: a unit of one.
  struct Copying {
    int row, unit;

    __device__ __forceinline__ explicit Copying(const FewSide& side)
        : row(static_cast<int>(side.units.quotient(threadIdx.x))),
          unit(static_cast<int>(threadIdx.x) - row * static_cast<int>(side.units.divisor)) {}
  };

  __device__ __forceinline__ bool is_cluster() const { return args_.block_shift > 0; }

  // --- Rows

  // Returns whether there are any that are this kernel's.
  __device__ __forceinline__ bool open(int sequence, int key_head) {
    const int first = p_.query_start[sequence], end = p_.query_start[sequence + 1];
    length_ = p_.key_length[sequence];
    factor_ = p_.factor(key_head);
    sequence_ = sequence;
    key_head_ = key_head;
    first_token_ = first;
    tokens_ = end - first;
    const bool lost =
        tokens_ > args_.most_tokens || length_ < 0 || length_ > args_.most_keys || !(factor_ > 0);
    if (lost || tokens_ == 0 || tokens_ > kRows) return false;
    rows_ = tokens_ * static_cast<int>(args_.group.divisor);
    if (rows_ > kRows) return false;
    // Keys move on from token to token. Causal ones before the first key see none.
    const Seen last = seen(tokens_ - 1);
    const int opening = p_.causal && tokens_ > length_ ? tokens_ - length_ : 0;
    seen_ = opening < tokens_ && length_ > 0 ? Seen{seen(opening).first, last.end} : Seen{0, 0};
    all_ = {last.first, seen(0).end};
    clear(found_);
    clear(merged_);
    return true;
  }
  // What a token of the sequence sees.
  __device__ __forceinline__ Seen seen(int token) const {
    const int position = length_ - (tokens_ - token);
    const int first = args_.window > 0 ? position - args_.window + 1 : 0;
    return {first < 0 ? 0 : first, p_.causal && position + 1 < length_ ? position + 1 : length_};
  }
  __device__ __forceinline__ int token_in_sequence(int row) const {
    return static_cast<int>(args_.group.quotient(static_cast<std::uint32_t>(row)));
  }
  __device__ __forceinline__ Seen seen_of_row(int row) const {
    return seen(token_in_sequence(row));
  }
  __device__ __forceinline__ bool sees(int span) const {
    return seen_.first < (span + 1) * kSpan && seen_.end > span * kSpan;
  }
  __device__ __forceinline__ int token_of(int row) const {
    return first_token_ + token_in_sequence(row);
  }
  __device__ __forceinline__ int head_of(int row) const {
    return (key_head_ - token_in_sequence(row)) * static_cast<int>(args_.group.divisor) + row;
  }

  // By those that multiply, who wait for it as they wait for the first stage.
  __device__ __forceinline__ void load_query() {
    if (warp_ >= kFewWarps) return;
    // As many units as a row of the cache has, where it is numbers.
    const auto units = static_cast<std::uint32_t>(args_.key.columns / 8);
    const auto* const query = static_cast<const T*>(p_.query);
#pragma unroll 1
    for (std::uint32_t i = threadIdx.x; i < kRows * units; i += kMultiplyThreads) {
      const auto r = static_cast<int>(kCodes ? i / units : args_.key.units.quotient(i));
      const int column = (static_cast<int>(i) - r * static_cast<int>(units)) * 8;
      T* const own = memory_.query + r * memory_.query_pitch + column;
      if (r < rows_)
        cuda::copy_async(cuda::shared_address_of(own), query + token_of(r) * p_.query_token +
                                                           head_of(r) * p_.query_head + column);
      else
        *reinterpret_cast<uint4*>(own) = {0, 0, 0, 0};
    }
    cuda::end_copy_group();
  }

  // --- A span

  __device__ __forceinline__ void add_span(int span) {
    span_ = span * kSpan;
    first_ = max(seen_.first - span_, 0);
    end_ = min(seen_.end - span_, kSpan);
    from_ = first_ / kStageKeys * kStageKeys;
    const int stages = (end_ - from_ + kStageKeys - 1) / kStageKeys;
    const int blocks = 1 << args_.block_shift;
    key_stages_ = max(stages - rank_ + blocks - 1, 0) >> args_.block_shift;
    if (is_cluster() && threadIdx.x == 0)
      memory_.sent->arrive_and_expect(stages *
                                      (kStageKeys * kRows * static_cast<int>(sizeof(float))));
    find_places();
    __syncthreads();
    // First keys, then values. What issues copies is there once, so that it is short.
#pragma unroll 1
    for (int values = 0; values < 2; ++values) {
      if (values) weigh_scores();
      if (warp_ < kFewWarps)
        multiply(values != 0);
      else if (values)
        add_powers();
    }
    __syncthreads();
  }
  // Takes the stages of keys, or those of values.
  __device__ __forceinline__ void multiply(bool values) {
    const int blocks = 1 << args_.block_shift;
#pragma unroll 1
    for (int i = values ? key_stages_ : 1 - kStages;; ++i) {
      const int from = values ? from_ + (i - key_stages_) * memory_.stage_values : i;
      if (from >= (values ? end_ : key_stages_)) break;
      if (i >= 0) {
        cuda::wait_for_copy_groups<kStages - 2>();
        multiplier_barrier();
      }
      issue(i + kStages - 1);
      if (i < 0) continue;
      if (values)
        add_stage(from, stage(i));
      else
        score(from_ + (rank_ + i * blocks) * kStageKeys, stage(i));
    }
  }
  // The powers of all scores; every block has those of all its cluster.
  __device__ __forceinline__ void weigh_scores() {
    if (is_cluster()) {
      memory_.sent->wait(parity_);
      parity_ ^= 1;
    } else {
      __syncthreads();
    }
    adjust_scores();
    find_most();
    __syncthreads();
    follow_most();
    __syncthreads();
    take_powers();
    __syncthreads();
  }

  // Where each key of the span lies, and its scales. Rows that see one that the cache lacks are
  // lost.
  __device__ __forceinline__ void find_places() {
    const std::int32_t* const table = p_.table ? p_.table + sequence_ * p_.table_row : nullptr;
#pragma unroll 1
    for (int j = first_ + static_cast<int>(threadIdx.x); j < end_; j += kFewThreads) {
      int page = sequence_, place = span_ + j;
      if (table) {
        const auto number = static_cast<int>(args_.of_page.quotient(place));
        place -= number * static_cast<int>(args_.of_page.divisor);
        page = table[number];
        if (page >= args_.pages) page = -1;
      }
      const bool lacks = page < 0;
      memory_.key_at[j] = lacks ? kNowhere : eights_of(args_.key, page, place);
      memory_.value_at[j] = lacks ? kNowhere : eights_of(args_.value, page, place);
      if (p_.measured) {
        const Place at{page, place};
        memory_.key_scale[j] = lacks ? 1 : p_.scale_of(p_.key, at, key_head_);
        memory_.value_scale[j] = lacks ? 1 : p_.scale_of(p_.value, at, key_head_);
      }
      if (!lacks) continue;
#pragma unroll 1
      for (int r = 0; r < rows_; ++r) {
        const Seen keys = seen_of_row(r);
        if (keys.first <= span_ + j && span_ + j < keys.end) memory_.lost[r] = 1;
      }
    }
  }
  __device__ __forceinline__ int eights_of(const FewSide& side, int page, int place) const {
    return page * side.page + place * side.place + key_head_ * side.head;
  }

  // Begins to copy stage i, if there is one. Rows that nobody sees are zeros, up to 64 of them.
  __device__ __forceinline__ void issue(int i) const {
    const bool keys = i < key_stages_;
    // Of values, so that no object has to have an address.
    const auto either = [&](auto of_keys, auto of_values) { return keys ? of_keys : of_values; };
    const int from = from_ + either((rank_ + (i << args_.block_shift)) * kStageKeys,
                                    (i - key_stages_) * memory_.stage_values);
    const int rest = (end_ - from + kStageKeys - 1) / kStageKeys * kStageKeys;
    const int count = min(rest, either(kStageKeys, memory_.stage_values));
    const std::uint8_t* const data =
        either(args_.key.data, args_.value.data + first_column_ * kBytes);
    const int* const places = either(memory_.key_at, memory_.value_at);
    const int pitch = either(memory_.key_pitch, memory_.value_pitch);
    const int units = static_cast<int>(either(args_.key.units.divisor, args_.value.units.divisor));
    // The last block may have fewer columns than others.
    const int there = either(units, columns_ * kBytes / 16);
    const int rows = either(args_.key.rows, args_.value.rows);
    const int more = either(args_.key.more, args_.value.more);
    int row = either(key_copy_.row, value_copy_.row);
    int unit = either(key_copy_.unit, value_copy_.unit);
    std::uint8_t* const to = stage(i);
#pragma unroll 4
    while (row < count) {
      const int j = from + row;
      const int at = first_ <= j && j < end_ && unit < there ? places[j] : kNowhere;
      std::uint8_t* const own = to + row * pitch + unit * 16;
      if (at != kNowhere)
        cuda::copy_async(cuda::shared_address_of(own),
                         data + static_cast<int64_t>(at) * (kEight * kBytes) + unit * 16);
      else
        *reinterpret_cast<uint4*>(own) = {0, 0, 0, 0};
      row += rows, unit += more;
      if (unit >= units) unit -= units, ++row;
    }
    cuda::end_copy_group();
  }
  __device__ __forceinline__ std::uint8_t* stage(int i) const {
    return memory_.stages + i % kStages * memory_.stage_bytes;
  }
  __device__ __forceinline__ static void multiplier_barrier() {
    cuda::named_barrier_wait(kMultiplierName, kMultiplyThreads);
  }

  // --- Scores

  // Products with the 64 keys of a stage, eight of which each warp has. `from`: the first of them,
  // in the span.
  __device__ __forceinline__ void score(int from, const std::uint8_t* keys) {
    const int g = lane_ / 4, t = lane_ % 4;
    const T* const query = memory_.query + own_row() * memory_.query_pitch + (kCodes ? 4 : 2) * t;
    const std::uint8_t* const key = keys + (warp_ * 8 + g) * memory_.key_pitch + 4 * t;
    float sums[4] = {};
    const int columns = args_.key.columns;
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
    float* const to = memory_.scores + g * kFewScorePitch + from + warp_ * 8 + 2 * t;
    if (g < kRows) store_scores(to, {sums[0], sums[1]});
    if constexpr (kRows > 8) store_scores(to + 8 * kFewScorePitch, {sums[2], sums[3]});
  }
  // In all blocks of the cluster.
  __device__ __forceinline__ void store_scores(float* to, float2 pair) const {
    if (!is_cluster()) {
      *reinterpret_cast<float2*>(to) = pair;
      return;
    }
    const std::uint32_t own = cuda::shared_address(to), barrier = memory_.sent->address();
#pragma unroll 1
    for (int rank = 0; rank < 1 << args_.block_shift; ++rank)
      cuda::send_pair(cuda::address_in_block(own, rank), pair,
                      cuda::address_in_block(barrier, rank));
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
  __device__ __forceinline__ bool weighs() const { return warp_ < kFewWarps && has_block(warp_); }
  // Calls use(row, its scores of this lane, number of the first key) for pairs of rows: the last
  // one may be none that there is.
  template <class Use>
  __device__ __forceinline__ void each_four(const Use& use) const {
    const int from = warp_ * math::kBlockKeys + 4 * lane_;
#pragma unroll 1
    for (int r = 0; r < rows_; r += 2)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        use(r + i, *reinterpret_cast<float4*>(memory_.scores + (r + i) * kFewScorePitch + from),
            from);
  }
  // Scores with the scales of their keys and below the cap, where there are such. The thread that
  // takes them next does it.
  __device__ __forceinline__ void adjust_scores() const {
    if (!weighs() || !(p_.scales_scores || p_.cap > 0)) return;
    const bool measured = p_.scales_scores && p_.measured;
    const float scale = p_.scales_scores ? p_.head_scale(p_.key, key_head_) : 1.0f;
#pragma unroll 1
    for (int i = 0; i < 4 * rows_; ++i) {
      const int j = warp_ * math::kBlockKeys + 4 * lane_ + i % 4;
      float& own = memory_.scores[i / 4 * kFewScorePitch + j];
      own = adjusted_score(own, measured ? memory_.key_scale[j] : scale, p_.cap, p_.inverse_cap);
    }
  }
  // The largest score of each row; -inf where a row does not see the key.
  __device__ __forceinline__ void find_most() {
    if (!weighs()) return;
    each_four([&](int r, float4& four, int from) {
      float x[4] = {four.x, four.y, four.z, four.w};
      const Seen keys = seen_of_row(r);
      float most = -math::detail::infinity();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = span_ + from + i;
        x[i] = keys.first <= key && key < keys.end ? x[i] : -math::detail::infinity();
        most = larger_or_nan(most, x[i]);
      }
      four = {x[0], x[1], x[2], x[3]};
      most = largest_of_warp(most);
      if (lane_ == 0) memory_.block_most[r * kSpanBlocks + warp_] = most;
    });
  }
  // M of each row in each block, and what earlier sums fade by: a thread for each.
  __device__ __forceinline__ void follow_most() {
    const int r = static_cast<int>(threadIdx.x) / kSpanBlocks;
    if (static_cast<int>(threadIdx.x) >= kRows * kSpanBlocks) return;
    const int block = lane_ % kSpanBlocks;
    const bool has = r < rows_ && has_block(block);
    float* const own = memory_.block_most + r * kSpanBlocks + block;
    const float found = has ? *own : -math::detail::infinity(), scaled = found * factor_;
    const bool lost = math::is_lost(found) || math::is_lost(scaled);
    float most = scaled > -math::detail::infinity() ? scaled : -math::detail::infinity();
#pragma unroll
    for (int step = 1; step < kSpanBlocks; step *= 2) {
      const float before = __shfl_up_sync(cuda::kAllLanes, most, step, kSpanBlocks);
      most = block >= step && before > most ? before : most;
    }
    const float before = __shfl_up_sync(cuda::kAllLanes, most, 1, kSpanBlocks);
    if (r >= rows_) return;
    if (has && lost) memory_.lost[r] = 1;
    *own = most;
    memory_.fading[r * kSpanBlocks + block] =
        math::fading(block > 0 ? before : -math::detail::infinity(), most);
    if (block == kSpanBlocks - 1) memory_.state[kStateSize * r] = most;
  }
  __device__ __forceinline__ void take_powers() {
    if (!weighs()) return;
    each_four([&](int r, float4& four, int from) {
      const float most = memory_.block_most[r * kSpanBlocks + warp_];
      float x[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (float& each : x) each = math::fused(each, factor_, -most);
      math::powers_of_scores(x);
      four = {x[0], x[1], x[2], x[3]};
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
    });
    // Rows that there are not weigh nothing.
    const int from = warp_ * math::kBlockKeys + 4 * lane_;
#pragma unroll 1
    for (int r = rows_; r < kRows; ++r)
      *reinterpret_cast<uint2*>(memory_.weights + r * kFewWeightPitch + from) = {0, 0};
  }
  // L of each row: four lanes have it together.
  __device__ __forceinline__ void add_powers() {
#pragma unroll 1
    for (int from = 0; from < rows_; from += 8) {
      const int r = from + lane_ / 4;
      float sum = 0;
      if (r < rows_)
#pragma unroll 1
        for (int block = first_ / math::kBlockKeys; block * math::kBlockKeys < end_; ++block) {
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
      if (lane_ % 4 == 0 && r < rows_) memory_.state[kStateSize * r + 1] = whole;
    }
  }

  // --- Values

  // Column n of a warp's tile, of the block's columns.
  __device__ __forceinline__ int column_of(int tile, int n) const {
    if constexpr (kCodes) return 32 * (warp_ + kFewWarps * (tile / 4)) + 4 * n + tile % 4;
    return (warp_ + kFewWarps * tile) * 8 + n;
  }
  __device__ __forceinline__ bool has_columns() const {
    return warp_ < kFewWarps && column_of(0, 0) < columns_;
  }
  // Calls use(tile, i, row, column) for each sum of this lane that there is.
  template <class Use>
  __device__ __forceinline__ void each_sum(const Use& use) const {
    if (!has_columns()) return;
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c)
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i) {
        const int column = column_of(c, lane_ % 4 * 2 + i % 2), row = lane_ / 4 + i / 2 * 8;
        if (column < columns_ && row < rows_) use(c, i, row, column);
      }
  }
  __device__ __forceinline__ static void clear(Sums& sums) {
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c)
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i) sums[c][i] = 0;
  }
  // Values from number `from` of the span on.
  __device__ __forceinline__ void add_stage(int from, const std::uint8_t* values) {
    const int end = min(from + memory_.stage_values, end_);
    if (from == from_) clear(found_);
#pragma unroll 1
    for (int at = from; at < end; at += kStageKeys, values += kStageKeys * memory_.value_pitch) {
      if (at == from_ || at % math::kBlockKeys == 0) fade(at / math::kBlockKeys);
      add_values(values, at);
    }
  }
  __device__ __forceinline__ void fade(int block) {
    float by[kHalves];
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
      by[half] = memory_.fading[(own_row() + 8 * half) * kSpanBlocks + block];
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c)
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i) found_[c][i] = found_[c][i] * by[i / 2];
  }
  // Of 64 keys from number `from` of the span on.
  __device__ __forceinline__ void add_values(const std::uint8_t* values, int from) {
    // Where rows see other keys, a value that is NaN or infinite meets those that see it alone.
    const int first = span_ + max(from, first_), end = span_ + min(from + kStageKeys, end_);
    const bool differ = first < all_.first || end > all_.end;
    const bool odd = differ && cuda::named_barrier_any(kMultiplierName, kMultiplyThreads,
                                                       has_odd_values(values));
    if (!has_columns()) return;
    if (!odd) {
      multiply_values<false>(values, from, 0);
      return;
    }
#pragma unroll 1
    for (int r = 0; r < rows_; ++r) multiply_values<true>(values, from, r);
  }
  __device__ __forceinline__ bool has_odd_values(const std::uint8_t* values) const {
    const auto units = static_cast<std::uint32_t>(columns_ * kBytes / 4);
    bool odd = false;
#pragma unroll 1
    for (std::uint32_t i = threadIdx.x; i < kStageKeys * units; i += kMultiplyThreads) {
      const std::uint32_t row = i / units;
      const std::uint32_t word =
          word_of(values + row * memory_.value_pitch + (i - row * units) * 4);
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

  // Adds values times weights to all rows, or to one of them. A tile that there is not repeats the
  // last one that there is, and nobody reads what it comes to.
  template <bool kOnly>
  __device__ __forceinline__ void multiply_values(const std::uint8_t* values, int from, int row) {
    const T* const weights =
        memory_.weights + own_row() * kFewWeightPitch + from + (kCodes ? 4 : 2) * (lane_ % 4);
    const Seen keys = kOnly ? seen_of_row(row) : Seen{};
    constexpr int kTiles = kCodes ? 4 : kColumnTiles;
    static_assert(kTiles == kColumnTiles);
#pragma unroll
    for (int two = 0; two < kStageKeys; two += 32) {
      std::uint32_t a[2][4], b[kTiles][4];
#pragma unroll
      for (int step = 0; step < 2; ++step)
        load_step(a[step], weights + two + 16 * step, kFewWeightPitch);
      load_values(b, values + two * memory_.value_pitch);
      if constexpr (kOnly) {
        const int first = keys.first - span_ - from - two;
#pragma unroll
        for (auto& tile : b) hide(tile, first, first + keys.end - keys.first);
      }
      add_steps<kOnly>(a, b, row);
    }
  }
  // Two steps of all tiles of values.
  template <int kTiles>
  __device__ __forceinline__ void load_values(std::uint32_t (&b)[kTiles][4],
                                              const std::uint8_t* from) const {
    if constexpr (!kCodes) {
#pragma unroll
      for (int c = 0; c < kTiles; ++c) {
        const int column = min(column_of(c, 0), columns_ - 8);
        cuda::load_transposed_matrices(
            b[c], cuda::shared_address_of(from + lane_ * memory_.value_pitch + column * 2));
      }
    } else {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const int column = min(column_of(0, lane_ / 4), columns_ - 4);
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[i] =
              word_of(from + (16 * step + 4 * (lane_ % 4) + i) * memory_.value_pitch + column);
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
  template <bool kOnly, int kTiles>
  __device__ __forceinline__ void add_steps(const std::uint32_t (&a)[2][4],
                                            const std::uint32_t (&b)[kTiles][4], int row) {
    float sums[kTiles][4] = {};
#pragma unroll
    for (int c = 0; c < kTiles; ++c)
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i) sums[c][i] = found_[c][i];
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
      for (int c = 0; c < kTiles; ++c)
        cuda::multiply_add_floats<T>(sums[c], a[step], b[c][2 * step], b[c][2 * step + 1]);
#pragma unroll
    for (int c = 0; c < kTiles; ++c)
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i)
        if (!kOnly || row == lane_ / 4 + i / 2 * 8) found_[c][i] = sums[c][i];
  }

  // --- Spans, and the end

  // Of a row's state: M and L of the last span, and of those before it.
  static constexpr int kStateSize = 4;

  // How the last span joins those before it.
  __device__ __forceinline__ math::Merging merging_of(int row) const {
    const float* const state = memory_.state + kStateSize * row;
    return merging_of_states(state[2], state[0]);
  }
  // Of all columns of this lane.
  __device__ __forceinline__ void merge_values() {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const math::Merging merging = merging_of(own_row() + 8 * half);
#pragma unroll
      for (int c = 0; c < kColumnTiles; ++c)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i)
          merged_[c][i] = merging.sum(merged_[c][i], found_[c][i]);
    }
  }
  __device__ __forceinline__ void merge_span() {
    merge_values();
    __syncthreads();
    const int r = static_cast<int>(threadIdx.x);
    if (r >= rows_) return;
    float* const state = memory_.state + kStateSize * r;
    const math::Merging merging = merging_of(r);
    state[3] = merging.sum(state[3], state[1]);
    state[2] = merging.most;
  }
  __device__ __forceinline__ void store_state(int span) {
    const int r = static_cast<int>(threadIdx.x);
    if (r < rows_ && rank_ == 0) {
      float* const state = args_.state(token_of(r), head_of(r), span);
      state[0] = memory_.lost[r] ? math::canonical_nan<float>() : memory_.state[kStateSize * r];
      state[1] = memory_.state[kStateSize * r + 1];
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int own = lane_ / 4 + 8 * half;
      if (own >= rows_) continue;
      float* const state = args_.state(token_of(own), head_of(own), span) + 2 + first_column_;
      each_sum([&](int c, int i, int, int column) {
        if (i / 2 == half) state[column] = found_[c][i];
      });
    }
  }
  // Values go through the room of scores, so that the code of an output is there once.
  __device__ __forceinline__ void finish() {
    merge_values();
    each_sum([&](int c, int i, int row, int column) {
      memory_.scores[row * kFewScorePitch + column] = merged_[c][i];
    });
    __syncthreads();
    const float scale = p_.head_scale(p_.value, key_head_);
#pragma unroll 1
    for (int row = warp_; row < rows_; row += kFewThreads / cuda::kWarp) {
      const float* const state = memory_.state + kStateSize * row;
      const math::Merging merging = merging_of(row);
      const int64_t token = token_of(row), head = head_of(row);
      const math::RowEnd end(merging.most, merging.sum(state[3], state[1]), memory_.lost[row] != 0,
                             args_.sink_of(head));
      const Seen keys = seen_of_row(row);
      if (p_.lse && lane_ == 0 && rank_ == 0)
        p_.lse[token * p_.lse_token + head] = math::narrow<float>(end.lse);
#pragma unroll 1
      for (int column = lane_; column < columns_; column += cuda::kWarp) {
        const float x = memory_.scores[row * kFewScorePitch + column];
        const float y = end.output(x, p_.scales_outputs() ? &scale : nullptr);
        args_.store(token, head, first_column_ + column,
                    end.lost                ? math::canonical_nan<float>()
                    : keys.first < keys.end ? y
                                            : 0.0f);
      }
    }
  }

  const FewArgs& args_;
  const Layout& p_;
  const Memory& memory_;
  const int warp_, lane_, rank_;
  const int first_column_, columns_;  // of the values, the block's
  const Copying key_copy_, value_copy_;
  int sequence_, key_head_, first_token_, tokens_, rows_, length_;
  Seen seen_, all_;         // keys that some row sees; that all see
  int span_, first_, end_;  // the span's first key; keys of it that some row sees
  int from_;                // the first key that a stage has
  int key_stages_;          // the block's of the span
  int parity_ = 0;          // of the scores that the cluster sends
  float factor_;
  Sums found_, merged_;
};

// Whether sequences follow one another, as a block finds out, or another kernel has. What rows need
// first is fetched besides. A barrier of the block is among it.
__device__ __forceinline__ bool check_few(const FewArgs& args) {
  const Layout& p = args.p;
  const auto thread = static_cast<int>(threadIdx.x);
  std::uint32_t own = blockIdx.x >> args.block_shift;
  if (args.states) own = args.of_spans.quotient(own);
  const auto sequence = static_cast<int>(args.of_key_heads.quotient(own));
  if (sequence < args.batch) {
    if (thread == 0) cuda::prefetch_near(p.key_length + sequence);
    constexpr int kLine = 128 / sizeof(std::int32_t);
    const int entry = thread * kLine;
    if (p.table && entry * static_cast<int64_t>(args.of_page.divisor) < args.most_keys)
      cuda::prefetch_near(p.table + sequence * p.table_row + entry);
  }
  bool wrong = false;
  if (!args.found_right) {
    wrong = *args.starts_are_right == 0;
  } else if (thread <= args.batch) {
    const std::int32_t start = p.query_start[thread], before = p.query_start[max(thread - 1, 0)];
    wrong = start < (thread > 0 ? before : 0) || start > p.tokens;
  }
  const bool right = !__syncthreads_or(wrong);
  if (args.found_right && args.states && blockIdx.x == 0 && thread == 0)
    *args.found_right = right ? 1 : 0;
  return right;
}

// Brings the arguments to where a multiprocessor reads them, before they are needed: a line a warp,
// so that they come at the same time.
__device__ __forceinline__ void fetch_arguments(const FewArgs& args) {
  constexpr int kLine = 64, kSize = sizeof(FewArgs);
  const auto* const bytes = reinterpret_cast<const char*>(&args);
#pragma unroll
  for (int first = 0; first < kSize; first += kFewThreads / cuda::kWarp * kLine) {
    const int at = first + static_cast<int>(threadIdx.x) / cuda::kWarp * kLine;
    auto word = *reinterpret_cast<const std::uint32_t*>(bytes + min(at, kSize - 4));
    cuda::keep(word);
  }
}

// Clusters have, in this order: sequences, key heads, spans. Where spans have no clusters of their
// own, tokens that no sequence has, or a lost one, are one more sequence.
template <class T, DType kCache, int kRows, int kColumnTiles>
__global__ void __launch_bounds__(kFewThreads, !is_code(kCache) && kColumnTiles > 2 ? 1 : 2)
    attend_few(const __grid_constant__ FewArgs args) {
  fetch_arguments(args);
  const FewMemory<T> memory(cuda::dynamic_shared(), kRows, args.key.columns, args.block_columns,
                            is_code(kCache) ? 1 : 2, args.p.measured);
  FewRowsTile<T, kCache, kRows, kColumnTiles> rows(args, memory);
  rows.begin();
  cuda::follow_previous();
  rows.wait_for_cluster();
  const bool right = check_few(args);
  const int work = static_cast<int>(blockIdx.x) >> args.block_shift;
  int of_span = work, span = -1;
  if (args.states) {
    of_span = static_cast<int>(args.of_spans.quotient(work));
    span = work - of_span * static_cast<int>(args.of_spans.divisor);
  }
  const auto sequence = static_cast<int>(args.of_key_heads.quotient(of_span));
  const int key_head = of_span - sequence * static_cast<int>(args.of_key_heads.divisor);
  if (sequence < args.batch) {
    if (right) rows.run(sequence, key_head, span);
  } else if (blockIdx.x == static_cast<unsigned>(work) << args.block_shift) {
    fill_rest(args, right, key_head);
  }
}

}  // namespace
}  // namespace planq::attention
