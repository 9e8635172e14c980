// Accumulation::GroupsSm90 for more rows of input (tokens) than groups_few_rows.cuh has, on wgmma.
//
// A warpgroup makes numbers of the codes of 64 output columns, in registers. These are wgmma's
// first operand, the tokens in shared memory are its second. Each run of terms is a chain of wgmma
// from +0. While the next numbers are made, its sums are scaled and added to those of the span.
//
// The groups of a block may have different columns: each is an owner, and goes through all spans.
// Or several groups share the same columns: each takes every kSharing-th span, and when it is
// complete, adds it to a total that goes from group to group, so that spans are added in their
// order.
//
// A slice is 128 terms, a half 64 of them. A statistic is what the sum of a run meets: a scale, and
// perhaps a zero point, by which codes are shifted.
#pragma once

#include "ops/linear/sm90/groups_tiles_ring.cuh"

namespace planq::linear::sm90::groups::tiles {

// --- A group of warps ---------------------------------------------------------------------------

template <class S>
class Group {
 public:
  using T = typename S::T;
  using Sums = sm90::Slice<S::kTokens>;

  // `totals`: of the spans before.
  __device__ __forceinline__ Group(const Args& args, const Rings<S>& rings,
                                   cuda::SharedAddress table, std::uint8_t* totals, int group)
      : args_(args),
        rings_(rings),
        decoder_(args, table),
        owner_(group / S::kSharing),
        rank_(group % S::kSharing),
        tiles_(count_tiles(args)) {
    const int thread = threadIdx.x % kGroupThreads, lane = threadIdx.x % cuda::kWarp;
    const int warp = owner_ * kGroupWarps + thread / cuda::kWarp;
    totals_ = reinterpret_cast<float*>(totals) + warp * S::kSums * cuda::kWarp;
    column_ = warp * kWarpColumns + lane / 4;
    codes_at_ =
        cuda::shared_address(rings.codes) + column_ * S::kRowBytes + S::Decoder::swizzle(column_);
    inputs_at_ = cuda::descriptor_of(cuda::shared_address(rings.inputs));
    slice_ = cuda::StageCursor<S::kStages>(rank_);
    part_ = cuda::StageCursor<S::kParts>(rank_);
  }

  __device__ __forceinline__ void run() {
    Sums sums[S::kSets], span;
#pragma unroll
    for (int i = 0; i < S::kSums; ++i) {
      span[i] = 0;
#pragma unroll
      for (Sums& set : sums) set[i] = 0;
    }
#pragma unroll 1
    for (int index = blockIdx.x; index < tiles_; index += gridDim.x)
      each_round<S>(args_, [&](const Round<S>& round, int number) {
        const int first = round.first + rank_ * args_.span_slices;
        add_span(sums, span, first, round.slices);
        end_span(span, index, number * S::kSharing + rank_, first + round.slices);
      });
  }

 private:
  // The run that has been issued and waits for its scales.
  struct Issued {
    float scale[2];  // of the thread's two columns
    int exists;      // it has terms
  };
  // Stages that can be released when a slice's runs are complete: its own, and that of its part if
  // it is the last one there.
  static constexpr int kNone = -1;
  struct Used {
    int slice = kNone, part = kNone;
  };
  using Numbers = std::uint32_t[kHalfSteps][4];
  using Shifts = std::uint32_t[S::kRuns][2];

  template <int kStages>
  static __device__ __forceinline__ void skip(cuda::StageCursor<kStages>& cursor) {
    cursor.stage += S::kSharing;
    if (cursor.stage < kStages) return;
    cursor.stage -= kStages;
    cursor.parity ^= 1;
  }

  // Adds slices, from number `first` on, to their span.
  __device__ __forceinline__ void add_span(Sums (&sums)[S::kSets], Sums& span, int first,
                                           int slices) {
    Issued issued{};
    Used used{};
#pragma unroll 1
    for (int i = 0; i < slices; ++i) {
      if (i % S::kPartSlices == 0) begin_part();
      rings_.slices.full[slice_.stage].wait(slice_.parity);
      if constexpr (S::kRun < kHalf)
        multiply_short(first + i, sums, span);
      else
        multiply_long(first + i, used, sums[0], span, issued);
      const bool ends_part = (i + 1) % S::kPartSlices == 0 || i + 1 == slices;
      used = {slice_.stage, ends_part ? part_.stage : kNone};
      if (S::kRun < kHalf) release(used);
      skip(slice_);
      if (ends_part) skip(part_);
      statistics_ += S::kRuns * S::kPartPitch * 4;
    }
    if constexpr (S::kRun >= kHalf) {
      complete(sums[0], span, issued);
      release(used);
    }
  }
  __device__ __forceinline__ void begin_part() {
    rings_.parts.full[part_.stage].wait(part_.parity);
    statistics_ =
        cuda::shared_address(rings_.statistics) + part_.stage * S::kPartBytes + column_ * 4;
  }
  __device__ __forceinline__ void release(const Used& used) const {
    if (used.slice != kNone) rings_.slices.release(used.slice);
    if (used.part != kNone) rings_.parts.release(used.part);
  }

  // Runs of a half or more: decodes a half while the one before is multiplied. A run is complete
  // before it is scaled, and then nothing of this group is multiplied; other groups' wgmma fills
  // the tensor cores. `used`: of the slice before, whose last run is completed here.
  __device__ __forceinline__ void multiply_long(int slice, const Used& used, Sums& sums, Sums& span,
                                                Issued& issued) {
    Shifts shifts;
    load_shifts(shifts);
    Numbers numbers[S::kHeld];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const bool begins = half == 0 || S::kRun == kHalf;
      // What wgmma multiplies has to stay as it is: the numbers of the half before the last.
      if constexpr (S::kHeld == 1)
        cuda::wgmma_wait<0>();
      else if constexpr (S::kRun == kSlice)
        cuda::wgmma_wait<1>();
      decode(half, shifts, numbers[half % S::kHeld]);
      if (begins) complete(sums, span, issued);
      if (half == 0) release(used);
      pin(numbers[half % S::kHeld]);
      issue(sums, numbers[half % S::kHeld], half, 0, begins);
      if (begins) load_scales(slice, half * kHalf / S::kRun, issued);
    }
  }
  // Shorter runs: two of a half are under way at a time, and none from half to half.
  __device__ __forceinline__ void multiply_short(int slice, Sums (&sums)[S::kSets], Sums& span) {
    Shifts shifts;
    load_shifts(shifts);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      Numbers numbers;
      Issued issued[2];
      decode(half, shifts, numbers);
      pin(numbers);
#pragma unroll
      for (int i = 0; i <= S::kHalfRuns; ++i) {
        const int before = (i + 1) % 2;
        if (i < S::kHalfRuns) {
          issue(sums[i % 2], numbers, half, i * S::kRunSteps, true);
          load_scales(slice, half * S::kHalfRuns + i, issued[i % 2]);
        }
        if (i == 0) continue;
        if (i < S::kHalfRuns)
          cuda::wgmma_wait<1>();
        else
          cuda::wgmma_wait<0>();
        cuda::pin(sums[before]);
        scale(sums[before], issued[before], span);
      }
    }
  }

  // Where the part has the statistics of a run of the slice, for the thread's first column.
  __device__ __forceinline__ cuda::SharedAddress statistics(int run) const {
    return statistics_ + run * S::kPartPitch * 4;
  }
  // What the codes of the thread's two columns are shifted by.
  __device__ __forceinline__ void load_shifts(Shifts& shifts) const {
#pragma unroll
    for (int run = 0; run < S::kRuns; ++run)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        shifts[run][i] = decoder_.unshifted();
        if constexpr (S::kMayShift)
          if (args_.codes.zero_point)
            shifts[run][i] = cuda::load_shared_word(statistics(run) + S::kPartWords * 4 + i * 32);
      }
  }
  // Makes the numbers of a half.
  __device__ __forceinline__ void decode(int half, const Shifts& shifts, Numbers& numbers) const {
    const cuda::SharedAddress codes = codes_at_ + slice_.stage * S::kCodeBytes;
#pragma unroll
    for (int i = 0; i < kHalfSteps; ++i) {
      const int step = half * kHalfSteps + i, run = step * kStep / S::kRun;
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const uint2 pairs =
            decoder_.step(codes + column * 8 * S::kRowBytes, step, shifts[run][column]);
        numbers[i][column] = pairs.x;
        numbers[i][column + 2] = pairs.y;
      }
    }
  }
  static __device__ __forceinline__ void pin(Numbers& numbers) {
#pragma unroll
    for (auto& step : numbers)
#pragma unroll
      for (std::uint32_t& pair : step) cuda::keep(pair);
  }
  // Multiplies some steps of a half, from step `first` on.
  __device__ __forceinline__ void issue(Sums& sums, const Numbers& numbers, int half, int first,
                                        bool begins) const {
    const std::uint64_t inputs =
        cuda::advanced(inputs_at_, slice_.stage * S::kInputBytes + half * S::kHalfBytes);
    cuda::wgmma_fence();
#pragma unroll
    for (int i = 0; i < S::kRunSteps; ++i)
      cuda::wgmma_add_held<T>(sums, numbers[first + i],
                              cuda::advanced(inputs, (first + i) * cuda::kWgmmaBytes),
                              i > 0 || !begins);
    cuda::wgmma_commit();
  }
  // Loads the scales of a run, for the thread's two columns.
  __device__ __forceinline__ void load_scales(int slice, int run, Issued& issued) const {
    const cuda::SharedAddress at = statistics(run);
    issued.scale[0] = __uint_as_float(cuda::load_shared_word(at));
    issued.scale[1] = __uint_as_float(cuda::load_shared_word(at + 32));
    issued.exists = slice * kSlice + run * S::kRun < args_.terms;
  }

  // Completes the run that has been issued.
  __device__ __forceinline__ void complete(Sums& sums, Sums& span, const Issued& issued) const {
    cuda::wgmma_wait<0>();
    cuda::pin(sums);
    scale(sums, issued, span);
  }
  // Scales the sums of a run and adds them to those of its span.
  static __device__ __forceinline__ void scale(const Sums& sums, const Issued& issued, Sums& span) {
#pragma unroll
    for (int i = 0; i < S::kSums; ++i)
      fuse_if(issued.exists, sums[i], issued.scale[i / 2 % 2], span[i]);
  }
  // Without a branch, since ptxas would wait there for the wgmma that is under way.
  static __device__ __forceinline__ void fuse_if(int does, float a, float b, float& c) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %1, 0; @p fma.rn.f32 %0, %2, %3, %0;}"
                 : "+f"(c)
                 : "r"(does), "f"(a), "f"(b));
  }

  // Adds span number `number` to the total of a tile, and stores the outputs, or hands the total
  // on. `end`: the first slice behind the span.
  __device__ __forceinline__ void end_span(Sums& span, int tile, int number, int end) {
    const bool begins = tile == static_cast<int>(blockIdx.x) && number == 0;
    const bool last = S::kSharing > 1 ? number == math::kSpans - 1 : end == args_.slices;
    if (S::kSharing > 1 && !begins) cuda::named_barrier_wait(barrier_of(0), 2 * kGroupThreads);
    auto* const totals = reinterpret_cast<float4*>(totals_) + threadIdx.x % cuda::kWarp;
#pragma unroll
    for (int v = 0; v < S::kSums / 4; ++v) {
      float4& own = totals[v * cuda::kWarp];
      float4 t = number == 0 ? make_float4(0, 0, 0, 0) : own;
      t.x += span[4 * v], t.y += span[4 * v + 1], t.z += span[4 * v + 2], t.w += span[4 * v + 3];
      own = t;
#pragma unroll
      for (int i = 0; i < 4; ++i) span[4 * v + i] = 0;
    }
    if (last) finish(tile);
    const bool ends = last && tile + static_cast<int>(gridDim.x) >= tiles_;
    if (S::kSharing > 1 && !ends) cuda::named_barrier_arrive(barrier_of(1), 2 * kGroupThreads);
  }
  // The named barrier of the group that is `later` spans behind this one. A group waits at its own
  // until the total reaches it.
  __device__ __forceinline__ int barrier_of(int later) const {
    return 1 + owner_ * S::kSharing + (rank_ + later) % S::kSharing;
  }

  // Stores outputs: a warp's totals, some tokens at a time, change places where they lie.
  __device__ __forceinline__ void finish(int index) const {
    constexpr int kTokens = 16, kTotals = kTokens / 2;
    const Tile tile = Tile::of<S>(args_, index);
    const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp % kGroupWarps;
    const int n = tile.n + owner_ * kGroupColumns + warp * kWarpColumns + lane % 4 * 4;
    const sm90::ScaledOutputs<float, sm90::SumsAre::Unscaled> out(args_.outputs, tile.batch);
    const auto columns = out.columns(n);
#pragma unroll 1
    for (int first = 0; first < S::kTokens; first += kTokens) {
      float* const block = totals_ + first * kWarpColumns;
      float totals[kTotals];
#pragma unroll
      for (int v = 0; v < kTotals / 4; ++v)
        reinterpret_cast<float4*>(totals)[v] =
            reinterpret_cast<const float4*>(block)[v * cuda::kWarp + lane];
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kTotals; ++i)
        block[(i / 4 * 8 + lane % 4 * 2 + i % 2) * kWarpColumns + lane / 4 + i % 4 / 2 * 8] =
            totals[i];
      __syncwarp();
      const int left = tile.end - tile.m - first;
      const int* own = reinterpret_cast<const int*>(block) + lane / 4 * kWarpColumns + lane % 4 * 4;
      const int count = max(min(left, kTokens) - lane / 4 + 7, 0) / 8;
      out.finish({own, 8 * kWarpColumns, count, 0, tile.m + first + lane / 4, 8, n}, {}, columns);
    }
    __syncwarp();  // the next tile's totals come here
  }

  const Args& args_;
  const Rings<S>& rings_;
  const typename S::Decoder decoder_;
  int owner_, rank_, tiles_;
  float* totals_;
  cuda::StageCursor<S::kStages> slice_;
  cuda::StageCursor<S::kParts> part_;
  int column_;
  cuda::SharedAddress codes_at_, statistics_ = 0;
  std::uint64_t inputs_at_;
};

// --- The kernel ---------------------------------------------------------------------------------

// What the warps do that copy.
template <class S>
__device__ __forceinline__ void copy(const Args& args, const Rings<S>& rings,
                                     cuda::SharedAddress table) {
  const int warp = cuda::uniform(static_cast<int>(threadIdx.x) / cuda::kWarp % kGroupWarps);
  if (warp == 0)
    copy_slices<S>(args, rings);
  else if (warp <= S::kStatisticWarps)
    StatisticCopies<S>(args, rings, table, warp - 1).run();
}

// The grid may have any number of blocks. Block i computes tiles i, i + blocks, and so on.
template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    multiply_tiles(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const Rings<S> rings(shared);
  if (threadIdx.x == S::kGroups * kGroupThreads) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    rings.open();
    cuda::prefetch_map(args.codes_map);
    cuda::prefetch_map(args.input_map);
  }
  const cuda::SharedAddress table = cuda::shared_address(shared + S::kTableAt);
  if constexpr (S::kHasTable) fill_pairs<typename S::T, S::kThreads / cuda::kWarp>(args, table);
  if (args.waits) cuda::wait_for_previous();
  __syncthreads();
  const int group = cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads);
  if (group < S::kGroups) {
    cuda::raise_registers<S::kGroupRegisters>();
    Group<S>(args, rings, table, shared + S::kTotalsAt, group).run();
  } else {
    cuda::lower_registers<S::kCopyRegisters>();
    copy<S>(args, rings, table);
  }
}

}  // namespace planq::linear::sm90::groups::tiles
