// Accumulation::GroupsSm90 for more rows of input (tokens) than
// groups_few_rows.cuh has, on wgmma.
//
// A warpgroup makes numbers of the codes of 64 output columns, in registers. These are wgmma's
// first operand, the tokens in shared memory are its second. Each run of terms is a chain of wgmma
// from +0. While the next run is decoded, its sums are scaled and added to those of the span.
//
// The groups of a block may have different columns: each is an owner, and goes through all spans.
// Or several groups share the same columns: each takes every kSharing-th span, and when it is
// complete, adds it to a total that goes from group to group, so that spans are added in their
// order.
//
// A slice is 128 terms, a stage of the ring. A statistic is what the sum of a run meets: a scale,
// and perhaps a zero point. A half is 64 terms of a column, which always have one statistic.
#pragma once

#include "ops/linear/sm90/groups_tiles_ring.cuh"

namespace planq::linear::sm90::groups::tiles {

// --- A group of warps ---------------------------------------------------------------------------

template <class S>
class Group {
 public:
  using T = typename S::T;
  using Sums = sm90::Slice<S::kTokens>;

  // `handed`: the totals that go from group to group, then the staging.
  __device__ __forceinline__ Group(const Args& args, const Ring<S>& ring, cuda::SharedAddress table,
                                   std::uint8_t* handed, int group)
      : args_(args),
        ring_(ring),
        decoder_(args, table),
        owner_(group / S::kSharing),
        tile_(blockIdx.x),
        tiles_(count_tiles(args)) {
    const int thread = threadIdx.x % kGroupThreads, lane = threadIdx.x % cuda::kWarp;
    const int warp = owner_ * kGroupWarps + thread / cuda::kWarp;
    handed_ = reinterpret_cast<float4*>(handed) + owner_ * kGroupThreads + thread;
    out_ = reinterpret_cast<float*>(handed + S::kHandedBytes) + warp * S::kOutTokens * S::kOutPitch;
    column_ = warp * kWarpColumns + lane / 4;
    codes_ =
        cuda::shared_address(ring.codes) + column_ * S::kRowBytes + S::Decoder::swizzle(column_);
    inputs_ = cuda::descriptor_of(cuda::shared_address(ring.inputs));
    order_.rank = cursor_.stage = group % S::kSharing;
  }

  __device__ __forceinline__ void run() {
    Sums sums, span, total;
#pragma unroll
    for (int i = 0; i < S::kSums; ++i) total[i] = span[i] = sums[i] = 0;
    Issued issued{};
#pragma unroll 1
    while (tile_ < tiles_) {
      ring_.full[cursor_.stage].wait(cursor_.parity);
      multiply(sums, span, total, issued);
      advance();
    }
    cuda::wgmma_wait<0>();
    cuda::pin(sums);
    fold(sums, span, total, issued);
  }

 private:
  // The run that has been issued and waits for its scales.
  struct Issued {
    float scale[2];  // of the thread's two columns
    int stage, tile, span;
    bool exists;  // it has terms
    bool ends_stage, ends_span, ends_tile;
  };
  using Numbers = std::uint32_t[kHalfSteps][4];

  __device__ __forceinline__ void advance() {
    cursor_.stage += S::kSharing;
    if (cursor_.stage >= S::kStages) {
      cursor_.stage -= S::kStages;
      cursor_.parity ^= 1;
    }
    if (order_.ends_tile(args_)) {
      order_.round = order_.within = 0;
      tile_ += gridDim.x;
    } else {
      order_.advance(args_);
    }
  }

  // Decodes the slice in the cursor's stage and issues its wgmma. Meanwhile scales the runs before.
  __device__ __forceinline__ void multiply(Sums& sums, Sums& span, Sums& total, Issued& issued) {
    const cuda::SharedAddress codes = codes_ + cursor_.stage * S::kCodeBytes;
    const std::uint64_t inputs = cuda::advanced(inputs_, cursor_.stage * S::kInputBytes);
    float2 scales[2];
    std::uint32_t shifts[kHalves][2];
    load_statistics(scales, shifts);
    Numbers numbers[kHalves];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      Numbers& held = numbers[half];
      cuda::wgmma_wait<1>();
      decode(codes, half, shifts[half], held);
      const bool begins = half == 0 || S::kRun == kHalf;
      if (begins) {
        cuda::wgmma_wait<0>();
        cuda::pin(sums);
        fold(sums, span, total, issued);
      }
      pin(held);
      cuda::wgmma_fence();
#pragma unroll
      for (int i = 0; i < kHalfSteps; ++i) {
        const int at = half * S::kTokens * cuda::kBoxBytes + i * cuda::kWgmmaBytes;
        cuda::wgmma_add_held<T>(sums, held[i], cuda::advanced(inputs, at), i > 0 || !begins);
      }
      cuda::wgmma_commit();
      issued.scale[0] = half == 0 ? scales[0].x : scales[0].y;
      issued.scale[1] = half == 0 ? scales[1].x : scales[1].y;
      const int first = S::kRun == kHalf ? half * kHalf : 0;  // of the run
      issued.exists = order_.slice(args_) * kSlice + first < args_.codes.terms;
      issued.ends_stage = half == kHalves - 1;
    }
    issued.stage = cursor_.stage;
    issued.tile = tile_;
    issued.span = order_.span();
    issued.ends_span = order_.ends_span(args_);
    issued.ends_tile = order_.ends_tile(args_);
  }
  static __device__ __forceinline__ void pin(Numbers& numbers) {
#pragma unroll
    for (auto& step : numbers)
#pragma unroll
      for (std::uint32_t& pair : step) cuda::keep(pair);
  }

  // Loads the scales of the thread's two columns, and what their codes are shifted by.
  __device__ __forceinline__ void load_statistics(float2 (&scales)[2],
                                                  std::uint32_t (&shifts)[kHalves][2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = cursor_.stage * S::kColumns + column_ + 8 * i;
      scales[i] = cuda::load_shared_pair(cuda::shared_address(ring_.scales + at));
      shifts[0][i] = shifts[1][i] = decoder_.unshifted();
      if constexpr (S::kShifted) {
        const int2 zero_points = ring_.zero_points[at];
        shifts[0][i] = decoder_.shifted(zero_points.x);
        shifts[1][i] = decoder_.shifted(zero_points.y);
      }
    }
  }
  __device__ __forceinline__ void decode(cuda::SharedAddress codes, int half,
                                         const std::uint32_t (&shifts)[2], Numbers& numbers) const {
#pragma unroll
    for (int i = 0; i < kHalfSteps; ++i) {
      const int step = half * kHalfSteps + i;
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const uint2 pairs = decoder_.step(codes + column * 8 * S::kRowBytes, step, shifts[column]);
        numbers[i][column] = pairs.x;
        numbers[i][column + 2] = pairs.y;
      }
    }
  }

  // Scales a run that has been multiplied and adds it to its span. Gives its stage back, and ends
  // the span, where it is the last one.
  __device__ __forceinline__ void fold(const Sums& sums, Sums& span, Sums& total,
                                       const Issued& issued) {
    if (issued.exists) {
#pragma unroll
      for (int i = 0; i < S::kSums; ++i)
        span[i] = math::fused(sums[i], issued.scale[i / 2 % 2], span[i]);
    }
    if (!issued.ends_stage) return;
    if (threadIdx.x % cuda::kWarp == 0) ring_.empty[issued.stage].arrive();
    if (!issued.ends_span) return;
    if constexpr (S::kSharing == 1)
      add_span(span, total, issued.tile, issued.ends_tile);
    else
      hand_on(span, issued.tile, issued.span);
#pragma unroll
    for (int i = 0; i < S::kSums; ++i) span[i] = 0;
  }

  // Adds a span to the total of the same thread.
  __device__ __forceinline__ void add_span(const Sums& span, Sums& total, int tile, bool last) {
#pragma unroll
    for (int i = 0; i < S::kSums; ++i) total[i] = total[i] + span[i];
    if (!last) return;
    finish(total, tile);
#pragma unroll
    for (int i = 0; i < S::kSums; ++i) total[i] = 0;
  }
  // Adds span number `index` to the total that the group before hands on, and hands it on.
  __device__ __forceinline__ void hand_on(Sums& span, int tile, int index) {
    const bool begins = tile == static_cast<int>(blockIdx.x) && index == 0;
    const bool last = index == math::kSpans - 1;
    if (!begins) cuda::named_barrier_wait(barrier_of(0), 2 * kGroupThreads);
    constexpr int kStride = S::kOwners * kGroupThreads;
#pragma unroll
    for (int v = 0; v < S::kSums / 4; ++v) {
      float4 t = index == 0 ? make_float4(0, 0, 0, 0) : handed_[v * kStride];
      t.x += span[4 * v], t.y += span[4 * v + 1], t.z += span[4 * v + 2], t.w += span[4 * v + 3];
      if (last)
        span[4 * v] = t.x, span[4 * v + 1] = t.y, span[4 * v + 2] = t.z, span[4 * v + 3] = t.w;
      else
        handed_[v * kStride] = t;
    }
    const bool ends = last && tile + static_cast<int>(gridDim.x) >= tiles_;
    if (!ends) cuda::named_barrier_arrive(barrier_of(1), 2 * kGroupThreads);
    if (last) finish(span, tile);
  }
  // The named barrier of the group that is `later` spans behind this one. A group waits at its own
  // until the total reaches it.
  __device__ __forceinline__ int barrier_of(int later) const {
    return 1 + owner_ * S::kSharing + (order_.rank + later) % S::kSharing;
  }

  // Stores outputs: a warp's sums go through its staging, some tokens at a time.
  __device__ __forceinline__ void finish(const Sums& total, int index) {
    const Tile tile = Tile::of<S>(args_, index);
    const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp % kGroupWarps;
    const int n = tile.n + owner_ * kGroupColumns + warp * kWarpColumns + lane % 4 * 4;
    const sm90::ScaledOutputs<float, sm90::SumsAre::Unscaled> out(args_.outputs, tile.batch);
    const auto columns = out.columns(n);
#pragma unroll
    for (int first = 0; first < S::kTokens; first += S::kOutTokens) {
      const int left = tile.end - tile.m - first;
      __syncwarp();
#pragma unroll
      for (int i = 0; i < S::kOutTokens / 2; ++i)
        out_[(i / 4 * 8 + lane % 4 * 2 + i % 2) * S::kOutPitch + lane / 4 + i % 4 / 2 * 8] =
            total[first / 2 + i];
      __syncwarp();
      const int* own = reinterpret_cast<const int*>(out_) + lane / 4 * S::kOutPitch + lane % 4 * 4;
      const int count = max(min(left, S::kOutTokens) - lane / 4 + 7, 0) / 8;
      out.finish({own, 8 * S::kOutPitch, count, 0, tile.m + first + lane / 4, 8, n}, {}, columns);
    }
  }

  const Args& args_;
  const Ring<S>& ring_;
  const typename S::Decoder decoder_;
  int owner_, tile_, tiles_;
  SliceOrder<S> order_;
  float4* handed_;
  float* out_;
  cuda::StageCursor<S::kStages> cursor_;
  int column_;
  cuda::SharedAddress codes_;
  std::uint64_t inputs_;
};

// --- The kernel ---------------------------------------------------------------------------------

// The grid may have any number of blocks. Block i computes tiles i, i + blocks, and so on.
template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    multiply_tiles(const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  auto* const barriers = reinterpret_cast<cuda::Barrier*>(shared + S::kBarriersAt);
  const Ring<S> ring{shared,
                     shared + S::kInputsAt,
                     reinterpret_cast<float2*>(shared + S::kScalesAt),
                     reinterpret_cast<int2*>(shared + S::kZeroPointsAt),
                     barriers,
                     barriers + S::kStages};
  constexpr int kCopies = S::kGroups * kGroupThreads;
  if (threadIdx.x == kCopies) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    ring.open();
    cuda::prefetch_map(args.codes_map);
    cuda::prefetch_map(args.input_map);
  }
  const cuda::SharedAddress table = cuda::shared_address(shared + S::kTableAt);
  if constexpr (S::kBits == 4) fill_pairs<typename S::T, S::kThreads / cuda::kWarp>(args, table);
  if (args.waits) cuda::wait_for_previous();
  __syncthreads();
  const int group = cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads);
  if (group < S::kGroups) {
    cuda::raise_registers<S::kGroupRegisters>();
    Group<S>(args, ring, table, shared + S::kHandedAt, group).run();
  } else {
    cuda::lower_registers<S::kCopyRegisters>();
    if (threadIdx.x == kCopies)
      copy_slices<S>(args, ring);
    else if (threadIdx.x >= kCopies + cuda::kWarp)
      StatisticCopies<S>(args, ring, threadIdx.x - kCopies - cuda::kWarp).run();
  }
}

}  // namespace planq::linear::sm90::groups::tiles
