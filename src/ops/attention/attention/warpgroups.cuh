// Attention of many queries on sm_90a: a block has rows of one sequence whose heads share a key
// head. One warp has TMA bring blocks of keys and values; two warpgroups multiply by wgmma. While
// one of them takes powers of its scores, the other multiplies.
//
// Up to 128 columns a block has 128 rows, and each group 64 of them. Up to 256 a block has 64 rows,
// for shared memory has no room for more. Then each group computes all scores, and 128 columns of
// values: the order in which a row's sum is added leaves no half of it to either.
//
// Steps, their order and all roundings are those of tiles.cuh. A tile that needs what this kernel
// lacks is left to that one: see `left`.
#pragma once

#include <cstdint>

#include "cuda/mbarrier.cuh"
#include "cuda/pairs.cuh"
#include "cuda/wgmma.cuh"
#include "ops/attention/attention/wide_tiles.cuh"

namespace planq::attention {
namespace {

constexpr int kGroupRows = 64, kGroups = 2;
constexpr int kGroupThreads = 128, kWideThreads = (kGroups + 1) * kGroupThreads;
// Registers of a thread that brings, and of one that multiplies.
constexpr int kBringerRegisters = 24, kMultiplierRegisters = 240;

// M and L of a row, of a span or of all so far.
struct Ended {
  float most, sum;
};

// Shared memory: slices of 64 columns, each of which has 128 bytes of every row. Those behind the
// last column are zeros.
template <int kColumns>
struct WideMemory {
  static constexpr int kRows = wide_rows(kColumns), kSlice = cuda::kBoxNumbers;
  static constexpr bool kShared = kRows == kGroupRows;  // both groups have the same rows
  static constexpr int kKeySlices = (kColumns + kSlice - 1) / kSlice;
  static constexpr int kOwnSlices = kShared ? 2 : kKeySlices;  // of values, of a group
  static constexpr int kValueSlices = kShared ? kGroups * kOwnSlices : kOwnSlices;
  static constexpr int kStages = kShared ? 1 : 2;
  static constexpr int kQuerySliceBytes = kRows * cuda::kBoxBytes;
  static constexpr int kSliceBytes = kWideBlock * cuda::kBoxBytes;
  static constexpr int kQueryBytes = kKeySlices * kQuerySliceBytes;
  static constexpr int kKeyBytes = kKeySlices * kSliceBytes;
  static constexpr int kOwnBytes = kOwnSlices * kSliceBytes;
  static constexpr int kValueBytes = kValueSlices * kSliceBytes;
  static constexpr int kSums = 32 * kOwnSlices;
  static constexpr int kMergedBytes = kGroups * kGroupThreads * kSums * 4;
  static constexpr int kJobs = 2, kBarriers = 2 + 4 * kStages;
  static constexpr int kBytes = kQueryBytes + kStages * (kKeyBytes + kValueBytes) + kMergedBytes +
                                kGroups * kGroupRows * static_cast<int>(sizeof(Ended)) +
                                kBarriers * static_cast<int>(sizeof(cuda::Barrier)) +
                                kJobs * static_cast<int>(sizeof(Job));

  std::uint8_t *query, *key, *value;
  float* merged;
  Ended* states;  // of each row of each group, of all spans so far
  Job* jobs;      // the block's present one, and its next
  cuda::Barrier *query_full, *query_empty, *key_full, *key_empty, *value_full, *value_empty;

  __device__ __forceinline__ explicit WideMemory(void* memory) {
    auto* const from = static_cast<std::uint8_t*>(memory);
    query = from;
    key = query + kQueryBytes;
    value = key + kStages * kKeyBytes;
    merged = reinterpret_cast<float*>(value + kStages * kValueBytes);
    states = reinterpret_cast<Ended*>(merged + kMergedBytes / 4);
    auto* const barriers = reinterpret_cast<cuda::Barrier*>(states + kGroups * kGroupRows);
    query_full = barriers;
    query_empty = query_full + 1;
    key_full = query_empty + 1;
    key_empty = key_full + kStages;
    value_full = key_empty + kStages;
    value_empty = value_full + kStages;
    jobs = reinterpret_cast<Job*>(value_empty + kStages);
  }
  __device__ __forceinline__ void open() const {
    constexpr int kWarps = kGroups * kGroupThreads / cuda::kWarp;
    query_full->init(1);
    query_empty->init(kWarps);
    for (int i = 0; i < kStages; ++i) {
      key_full[i].init(1);
      key_empty[i].init(kWarps);
      value_full[i].init(1);
      value_empty[i].init(kWarps);
    }
    cuda::publish_barriers();
  }
};

// --- The warp that brings ------------------------------------------------------------------------

template <int kColumns>
class Bringer {
 public:
  using Memory = WideMemory<kColumns>;
  static constexpr int kKeySlices = Memory::kKeySlices, kValueSlices = Memory::kValueSlices;

  __device__ __forceinline__ Bringer(const WideArgs& args, const Memory& memory)
      : args_(args), memory_(memory) {}

  __device__ __forceinline__ void run() {
    const auto count = static_cast<std::uint32_t>(*args_.starts_are_right != 0 ? args_.count : 0);
#pragma unroll 1
    for (std::uint32_t number = blockIdx.x; number < count; number += gridDim.x) {
      const Job job = job_of(args_, number);
      if (job.tokens <= 0 || (job.span >= 0 && !job.sees())) continue;
      tell(job);
      if (job.sees()) bring_all(job);
    }
    tell({.number = -1});
  }

 private:
  using Cursor = cuda::StageCursor<Memory::kStages>;

  // Tells warpgroups what to do next, and brings its queries.
  __device__ __forceinline__ void tell(const Job& job) {
    memory_.query_empty->wait(queries_ ^ 1);
    if (cuda::is_elected()) {
      memory_.jobs[queries_] = job;
      const int rows = args_.tile_tokens * static_cast<int>(args_.p.group());
      memory_.query_full->arrive_and_expect(job.sees() ? kKeySlices * rows * cuda::kBoxBytes : 0);
      if (job.sees())
#pragma unroll
        for (int slice = 0; slice < kKeySlices; ++slice)
          cuda::copy_box(memory_.query + slice * Memory::kQuerySliceBytes, args_.query_map,
                         {slice * Memory::kSlice, job.key_head * static_cast<int>(args_.p.group()),
                          job.first_token, 0},
                         *memory_.query_full);
    }
    __syncwarp();
    queries_ ^= 1;
  }
  __device__ __forceinline__ void bring_all(const Job& job) {
    const int end = job.end_block();
#pragma unroll 1
    for (int block = job.first_block(); block < end; ++block) {
      bring<kKeySlices>(job, block, args_.key_map, memory_.key, memory_.key_full, memory_.key_empty,
                        keys_);
      bring<kValueSlices>(job, block, args_.value_map, memory_.value, memory_.value_full,
                          memory_.value_empty, values_);
    }
  }
  // Pages that no row needs are those behind the last, of which TMA makes zeros.
  template <int kSlices>
  __device__ __forceinline__ void bring(const Job& job, int block, const cuda::TensorMap& map,
                                        std::uint8_t* stages, cuda::Barrier* full,
                                        cuda::Barrier* empty, Cursor& at) {
    const Layout& p = args_.p;
    empty[at.stage].wait(at.parity ^ 1);
    if (cuda::is_elected()) full[at.stage].arrive_and_expect(kSlices * Memory::kSliceBytes);
    __syncwarp();
    std::uint8_t* const to = stages + at.stage * kSlices * Memory::kSliceBytes;
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    for (int i = lane * args_.box_keys; i < kWideBlock; i += cuda::kWarp * args_.box_keys) {
      const int first = block * kWideBlock + i;
      const bool needed = first < job.end && first + args_.box_keys > job.first;
      Place place{p.pages, 0};
      if (needed) place = p.place_of(job.sequence, first);
      if (place.page < 0) args_.left[job.number] = 1;
#pragma unroll
      for (int slice = 0; slice < kSlices; ++slice)
        cuda::copy_box(to + slice * Memory::kSliceBytes + i * cuda::kBoxBytes, map,
                       {slice * Memory::kSlice, static_cast<int>(place.place), job.key_head,
                        static_cast<int>(place.page < 0 ? p.pages : place.page)},
                       full[at.stage]);
    }
    __syncwarp();
    at.advance();
  }

  const WideArgs& args_;
  const Memory& memory_;
  Cursor keys_, values_;
  int queries_ = 0;
};

// --- A warpgroup that multiplies -----------------------------------------------------------------

template <class T, int kColumns, bool kCapped>
class Multiplier {
 public:
  using Memory = WideMemory<kColumns>;
  static constexpr int kScores = kWideBlock / 2, kSums = Memory::kSums;
  static constexpr int kTogether = 8;  // powers that are taken side by side

  __device__ __forceinline__ Multiplier(const WideArgs& args, const Memory& memory)
      : args_(args),
        p_(args.p),
        memory_(memory),
        group_(cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads)),
        lane_(static_cast<int>(threadIdx.x) % cuda::kWarp) {
    const int first_row = Memory::kShared ? 0 : group_ * kGroupRows;
    query_ = cuda::descriptor_of(cuda::shared_address(memory.query) + first_row * cuda::kBoxBytes);
    if (group_ == 1) give_turn();
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    while (true) {
      memory_.query_full->wait(queries_);
      const Job& job = memory_.jobs[queries_];
      if (job.number < 0) break;
      open(job);
      if (job.sees())
        attend(job);
      else
        release_query();
      if (job.span < 0)
        finish(job);
      else
        store_states(job);
    }
    if (group_ == 0) take_turn();
  }

 private:
  using Cursor = cuda::StageCursor<Memory::kStages>;
  struct Row {
    float most, sum, fading;  // sum: the lane's own of the four
    bool lost;
  };

  __device__ __forceinline__ void attend(const Job& job) {
    const int end = job.end_block();
#pragma unroll 1
    for (int block = job.first_block(); block < end; ++block) {
      std::uint32_t weights[kScores / 2];
      weigh(job, block, weights);
      if (block + 1 == end) release_query();
      fade();
      memory_.value_full[values_.stage].wait(values_.parity);
      if (!job.all_see(block)) tidy(job, block);
      add_values(weights);
      if ((block + 1) % (math::kSpanKeys / kWideBlock) == 0 || block + 1 == end) merge_span();
    }
    if (odd_) args_.left[job.number] = 1;
  }
  // The weights of a block. One group's products follow the other's, so that one of them takes
  // powers while the other multiplies.
  __device__ __forceinline__ void weigh(const Job& job, int block,
                                        std::uint32_t (&weights)[kScores / 2]) {
    float scores[kScores];
    memory_.key_full[keys_.stage].wait(keys_.parity);
    take_turn();
    score(scores);
    cuda::wgmma_commit();
    give_turn();
    cuda::wgmma_wait<0>();
    cuda::pin(scores);
    release(memory_.key_empty, keys_);
    adjust(job, block, scores);
    find_most(scores);
    take_powers(scores, weights);
  }
  __device__ __forceinline__ void take_turn() const {
    cuda::named_barrier_wait(1 + group_, kGroups * kGroupThreads);
  }
  __device__ __forceinline__ void give_turn() const {
    cuda::named_barrier_arrive(2 - group_, kGroups * kGroupThreads);
  }
  __device__ __forceinline__ void release(cuda::Barrier* empty, Cursor& at) const {
    if (lane_ == 0) empty[at.stage].arrive();
    at.advance();
  }
  __device__ __forceinline__ void release_query() {
    if (lane_ == 0) memory_.query_empty->arrive();
    queries_ ^= 1;
  }

  __device__ __forceinline__ int row_in_group(int i) const {
    const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp % 4;
    return warp * 16 + lane_ / 4 + 8 * i;
  }
  __device__ __forceinline__ int row_in_tile(int i) const {
    return (Memory::kShared ? 0 : group_ * kGroupRows) + row_in_group(i);
  }
  __device__ __forceinline__ Ended& state(int i) const {
    return memory_.states[group_ * kGroupRows + row_in_group(i)];
  }
  // Where both groups have a row, one of them has what is of the row and no column.
  __device__ __forceinline__ bool has_rows() const { return !Memory::kShared || group_ == 0; }
  // Calls use(i, column) for each pair of columns of values that this lane has: i numbers them.
  template <class Use>
  __device__ __forceinline__ void each_pair(const Use& use) const {
    const int first = Memory::kShared ? group_ * Memory::kOwnSlices * Memory::kSlice : 0;
#pragma unroll
    for (int i = 0; i < Memory::kOwnSlices * Memory::kSlice / 8; ++i)
      if (first + 8 * i < kColumns) use(i, first + 8 * i + lane_ % 4 * 2);
  }
  __device__ __forceinline__ void open(const Job& job) {
    factor_ = p_.factor(job.key_head);
    odd_ = false;
    merged_spans_ = false;
#pragma unroll
    for (Row& row : rows_) row = {-math::detail::infinity(), 0, 1, false};
#pragma unroll
    for (int i = 0; i < kSums; ++i) found_[i] = 0;
  }
  // The keys that a row sees.
  struct Seen {
    int first, end;
  };
  __device__ __forceinline__ Seen seen(const Job& job, int i) const {
    const int token = row_in_tile(i) / static_cast<int>(p_.group());
    if (token >= job.tokens) return {0, 0};
    const int position = job.first_token + token - job.origin;
    const int first = p_.window > 0 ? position - static_cast<int>(p_.window) + 1 : 0;
    return {first < 0 ? 0 : first,
            p_.causal && position + 1 < job.length ? position + 1 : job.length};
  }

  // --- Scores

  __device__ __forceinline__ void score(float (&scores)[kScores]) {
    const std::uint64_t key =
        cuda::descriptor_of(cuda::shared_address(memory_.key) + keys_.stage * Memory::kKeyBytes);
    cuda::pin(scores);
    cuda::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) {
      const int slice = step / 4, at = step % 4 * cuda::kWgmmaBytes;
      cuda::wgmma_add_floats<T, T>(scores,
                                   cuda::advanced(query_, slice * Memory::kQuerySliceBytes + at),
                                   cuda::advanced(key, slice * Memory::kSliceBytes + at), step > 0);
    }
  }

  __device__ __forceinline__ static int inside(int key, int block) {
    const int at = key - block * kWideBlock;
    return at < 0 ? 0 : at < kWideBlock ? at : kWideBlock;
  }
  __device__ __forceinline__ void adjust(const Job& job, int block, float (&scores)[kScores]) {
    if constexpr (kCapped)
#pragma unroll
      for (float& x : scores) {
        const float share = x * p_.inverse_cap;
        x = p_.cap * math::tanh(share);
      }
    if (!job.all_see(block)) mask(job, block, scores);
  }
  __device__ __forceinline__ void mask(const Job& job, int block, float (&scores)[kScores]) const {
    const int own = lane_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Seen keys = seen(job, i);
      const int first = inside(keys.first, block) - own, end = inside(keys.end, block) - own;
#pragma unroll
      for (int j = 0; j < kScores / 4; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool sees = first <= 8 * j + e && 8 * j + e < end;
          float& x = scores[4 * j + 2 * i + e];
          x = sees ? x : -math::detail::infinity();
        }
    }
  }
  // Score j of row i of this lane.
  __device__ __forceinline__ static float& score_of(float (&scores)[kScores], int i, int j) {
    return scores[j / 2 * 4 + 2 * i + j % 2];
  }
  __device__ __forceinline__ void find_most(float (&scores)[kScores]) {
    float most[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float parts[4];
#pragma unroll
      for (int j = 0; j < kScores / 2; ++j) {
        const float x = score_of(scores, i, j);
        parts[j % 4] = j < 4 ? x : larger_or_nan(parts[j % 4], x);
      }
      most[i] = larger_or_nan(larger_or_nan(parts[0], parts[1]), larger_or_nan(parts[2], parts[3]));
    }
#pragma unroll
    for (int step = 1; step < 4; step *= 2)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        most[i] = larger_or_nan(most[i], __shfl_xor_sync(cuda::kAllLanes, most[i], step));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Row& row = rows_[i];
      const float scaled = most[i] * factor_;
      row.lost = row.lost || math::is_lost(scaled) || math::is_lost(most[i]);
      const float next = scaled > row.most ? scaled : row.most;
      row.fading = math::fading(row.most, next);
      row.most = next;
      row.sum = row.sum * row.fading;
    }
  }
  // What values are weighed by. Scores stay as they are: the assembler takes registers that
  // products write for theirs alone while any products run.
  __device__ __forceinline__ void take_powers(float (&scores)[kScores],
                                              std::uint32_t (&weights)[kScores / 2]) {
#pragma unroll
    for (int from = 0; from < kScores; from += kTogether) {
      float x[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j)
        x[j] = math::fused(scores[from + j], factor_, -rows_[j / 2 % 2].most);
      math::powers_of_scores(x);
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        Row& row = rows_[j / 2 % 2];
        row.sum = row.sum + x[j];
        if (j % 2 == 1) weights[(from + j) / 2] = cuda::pair_of(x[j - 1], x[j], T{});
      }
    }
  }

  // --- Values

  __device__ __forceinline__ void fade() {
    if (!__any_sync(cuda::kAllLanes, rows_[0].fading != 1 || rows_[1].fading != 1)) return;
#pragma unroll
    for (int i = 0; i < kSums; ++i) found_[i] = found_[i] * rows_[i / 2 % 2].fading;
  }
  // The group's own columns.
  __device__ __forceinline__ std::uint8_t* value() const {
    return memory_.value + values_.stage * Memory::kValueBytes +
           (Memory::kShared ? group_ * Memory::kOwnBytes : 0);
  }
  __device__ __forceinline__ void add_values(std::uint32_t (&weights)[kScores / 2]) {
    const std::uint64_t values =
        cuda::transposed_descriptor_of<kWideBlock>(cuda::shared_address(value()));
    cuda::pin(found_);
    cuda::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kWideBlock / 16; ++step) {
      const std::uint32_t first[4] = {weights[4 * step], weights[4 * step + 1],
                                      weights[4 * step + 2], weights[4 * step + 3]};
      cuda::wgmma_add_held<cuda::Transposed<T>>(
          found_, first, cuda::advanced(values, step * 16 * cuda::kBoxBytes), 1);
    }
    cuda::wgmma_commit();
    cuda::wgmma_wait<0>();
    cuda::pin(found_);
    cuda::pin(weights);
    release(memory_.value_empty, values_);
  }

  // In a block that some row does not see whole: values that no row sees become 0, which adds
  // nothing, whatever they are. One that some row sees may be NaN or infinite, and times 0 a NaN.
  __device__ __forceinline__ void tidy(const Job& job, int block) {
    const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
    const int first = inside(job.first, block);
    const int end = inside(job.end, block);
    uint4* const eights = reinterpret_cast<uint4*>(value());
    std::uint32_t largest = 0;  // of either half, without signs
#pragma unroll 4
    for (int i = thread; i < Memory::kOwnBytes / 16; i += kGroupThreads) {
      const int row = i / 8 % kWideBlock;
      const uint4 eight = eights[i];
      const bool sees = first <= row && row < end;
      if (!sees) eights[i] = {0, 0, 0, 0};
#pragma unroll
      for (const std::uint32_t word : {eight.x, eight.y, eight.z, eight.w})
        largest = __vmaxu2(largest, sees ? word & 0x7FFF7FFF : 0);
    }
    constexpr std::uint32_t kOdd = std::is_same_v<T, math::Half> ? 0x7C00 : 0x7F80;
    odd_ = odd_ || largest >> 16 >= kOdd || (largest & 0xFFFF) >= kOdd;
    cuda::fence_async_proxy();
    cuda::named_barrier_wait(3 + group_, kGroupThreads);
  }

  // --- Spans, and the end

  __device__ __forceinline__ float* merged(int i) const {
    return memory_.merged + (group_ * kSums + i) * kGroupThreads +
           static_cast<int>(threadIdx.x) % kGroupThreads;
  }
  // Ends a span: its state is merged with that of all before.
  __device__ __forceinline__ void merge_span() {
    float first[2], second[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Row& row = rows_[i];
      const float half = row.sum + __shfl_xor_sync(cuda::kAllLanes, row.sum, 1);
      const float sum = half + __shfl_xor_sync(cuda::kAllLanes, half, 2);
      Ended& so_far = state(i);
      const Ended before = merged_spans_ ? so_far : Ended{-math::detail::infinity(), 0};
      const math::Merging merging(before.most, row.most);
      first[i] = merging.first, second[i] = merging.second;
      __syncwarp();
      if (lane_ % 4 == 0) so_far = {merging.most, merging.sum(before.sum, sum)};
      row.most = -math::detail::infinity();
      row.sum = 0;
    }
    // Some numbers at a time are under way from shared memory.
    constexpr int kTogether = 16;
#pragma unroll
    for (int from = 0; from < kSums; from += kTogether) {
      float before[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) before[i] = merged_spans_ ? *merged(from + i) : 0.0f;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int row = i / 2 % 2;
        const float faded = before[i] * first[row], own = found_[from + i] * second[row];
        *merged(from + i) = faded + own;
        found_[from + i] = 0;
      }
    }
    merged_spans_ = true;
    __syncwarp();
  }

  // Calls use(i, token, head) for the rows of this lane that there are.
  template <class Use>
  __device__ __forceinline__ void each_row(const Job& job, const Use& use) const {
    const int group = static_cast<int>(p_.group());
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = row_in_tile(i) / group, head = row_in_tile(i) - token * group;
      if (token < job.tokens)
        use(i, int64_t{job.first_token} + token, int64_t{job.key_head} * group + head);
    }
  }
  __device__ __forceinline__ Ended state_of(const Job& job, int i) const {
    return job.sees() ? state(i) : Ended{-math::detail::infinity(), 0};
  }
  __device__ __forceinline__ void store_states(const Job& job) const {
    each_row(job, [&](int r, int64_t token, int64_t head) {
      float* const to = args_.state(token, head, job.span);
      const Ended own = state_of(job, r);
      if (lane_ % 4 == 0 && has_rows()) {
        to[0] = rows_[r].lost ? math::canonical_nan<float>() : own.most;
        to[1] = own.sum;
      }
      each_pair([&](int i, int column) {
#pragma unroll
        for (int e = 0; e < 2; ++e) to[2 + column + e] = *merged(4 * i + 2 * r + e);
      });
    });
  }
  __device__ __forceinline__ void finish(const Job& job) const {
    const float scale = p_.head_scale(p_.value, job.key_head);
    each_row(job, [&](int r, int64_t token, int64_t head) {
      const Ended all = state_of(job, r);
      const Seen keys = seen(job, r);
      const math::RowEnd end(all.most, all.sum, rows_[r].lost, args_.sink_of(head));
      if (p_.lse && lane_ % 4 == 0 && has_rows())
        p_.lse[token * p_.lse_token + head] = math::narrow<float>(end.lse);
      const int64_t at = token * p_.output_token + head * p_.output_head;
      each_pair([&](int i, int column) {
        float y[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float x = job.sees() ? *merged(4 * i + 2 * r + e) : 0.0f;
          y[e] = end.output(x, p_.scales_outputs() ? &scale : nullptr);
          y[e] = end.lost ? math::canonical_nan<float>() : keys.first < keys.end ? y[e] : 0.0f;
        }
        args_.store_pair(at + column, y[0], y[1]);
      });
    });
  }

  const WideArgs& args_;
  const Layout& p_;
  const Memory& memory_;
  const int group_, lane_;
  std::uint64_t query_;
  Cursor keys_, values_;
  int queries_ = 0;
  float factor_;
  bool odd_, merged_spans_;
  Row rows_[2];
  float found_[kSums];
};

template <class T, int kColumns, bool kCapped>
__global__ void __launch_bounds__(kWideThreads, 1)
    attend_wide(const __grid_constant__ WideArgs args) {
  using Memory = WideMemory<kColumns>;
  extern __shared__ __align__(1024) std::uint8_t wide_memory[];
  const Memory memory(wide_memory);
  if (threadIdx.x == 0) {
    if (cuda::shared_address(wide_memory) % 1024 != 0) __trap();
    memory.open();
  }
  __syncthreads();
  if (threadIdx.x >= kGroups * kGroupThreads) {
    cuda::lower_registers<kBringerRegisters>();
    if (threadIdx.x / cuda::kWarp == kGroups * kGroupThreads / cuda::kWarp)
      Bringer<kColumns>(args, memory).run();
  } else {
    cuda::raise_registers<kMultiplierRegisters>();
    Multiplier<T, kColumns, kCapped>(args, memory).run();
  }
}

}  // namespace
}  // namespace planq::attention
