// Floating gemms with few rows of input (tokens), on the tensor cores of sm_90a. They take as long
// as the weight takes to read. Gemms with more tokens come here, too, if they would have too few
// tiles.
//
// The weight is wgmma's first operand, the tokens are its second. Which one comes first changes no
// bit, so the bits are those of float_tiles.cuh. A block computes 64 columns of the output and goes
// through all of k, since slices have to be added in order. Each multiprocessor has one large ring,
// or several blocks with smaller ones, so that the memory is always busy. Clusters that shared the
// tokens of their blocks were no faster.
#pragma once

#include "ops/linear/sm90/fragments.cuh"
#include "ops/linear/sm90/heuristics.h"
#include "ops/linear/sm90/slices.cuh"

namespace planq::linear::sm90 {

struct FloatFewRowsArgs : FewRowsArgs {
  std::int64_t weight_scale_row;  // with scales of blocks: see Gemm
  int stages;                     // of the ring, at least those of three slices
};

template <int kTokens_>
struct FloatFewRowsShape {
  static constexpr int kTokens = kTokens_;
  static constexpr int kColumns = cuda::kWgmmaRows;  // of the output: rows of the weight
  static constexpr int kFirstBytes = kColumns * cuda::kBoxBytes;
  static constexpr int kStageBytes = kFirstBytes + kTokens * cuda::kBoxBytes;
  static constexpr int kThreads = kGroupThreads + cuda::kWarp;
  static constexpr int kResident = most_resident(kTokens);
  // In the end, the sums of a block overwrite the stages, token by token. Padded against bank
  // conflicts.
  static constexpr int kPitch = kColumns + 4;
  static constexpr int kSumBytes = kTokens * kPitch * static_cast<int>(sizeof(float));
  // The scales of all tokens for a slice, for each warp.
  static constexpr int kScaleBytes = kGroupWarps * kTokens * static_cast<int>(sizeof(float));
  static constexpr int shared_bytes(int stages) {
    return std::max(stages * kStageBytes, kSumBytes) + kScaleBytes +
           2 * stages * static_cast<int>(sizeof(cuda::Barrier));
  }
  // The most stages that fit if so many blocks share a multiprocessor.
  static constexpr int stages(int resident) {
    int count = 1;
    while (resident * (shared_bytes(count + 1) + 1024) <= 228 * 1024) ++count;
    return count;
  }
  // Two slices of 16-bit numbers: one is added while the other is multiplied.
  static_assert(stages(kResident) >= 4);
};

// Like Ring, but the launch says how many stages there are.
template <class Shape>
struct FloatFewRowsRing {
  using Cursor = cuda::CountedCursor;
  static constexpr int kStageBytes = Shape::kStageBytes;

  std::uint8_t* stages;  // aligned to 1024 bytes, for the swizzle
  cuda::Barrier* full;
  cuda::Barrier* empty;
  int count;

  __device__ __forceinline__ std::uint8_t* first(int stage) const {
    return stages + stage * kStageBytes;
  }
  __device__ __forceinline__ std::uint8_t* second(int stage) const {
    return first(stage) + Shape::kFirstBytes;
  }
  // Called by one thread.
  __device__ __forceinline__ void open() const {
    for (int i = 0; i < count; ++i) {
      full[i].init(1);
      empty[i].init(kGroupWarps);
    }
    cuda::publish_barriers();
  }
  __device__ __forceinline__ Cursor cursor() const { return Cursor(count); }
  // Called by every warp that has read a stage.
  __device__ __forceinline__ void release(int stage) const {
    if (threadIdx.x % cuda::kWarp == 0) empty[stage].arrive();
  }
};

// The token of sum `i` of this lane, counted from the block's first. Sum i + 2 has the same token.
__device__ __forceinline__ int token_of(int i) {
  const int lane = threadIdx.x % cuda::kWarp;
  return i / 4 * 8 + lane % 4 * 2 + i % 2;
}

// Adds slices under the scales of their blocks to the total. A sum's token is another in each lane,
// so a slice needs the scales of all tokens: lane t loads that of token t when the slice begins,
// and shares it with its warp when the slice is added.
template <int kTokens>
class TokenSlices {
 public:
  static_assert(kTokens <= cuda::kWarp);
  struct Own {
    float of_token;
  };

  // `m`, `n`: the first token and the first column of the block. `staged`: the warp's part of
  // shared memory, for the scales of one slice.
  __device__ __forceinline__ TokenSlices(const FloatFewRowsArgs& args, int batch, std::int64_t m,
                                         std::int64_t n, float* staged)
      : staged_(staged) {
    const Outputs& outputs = args.outputs;
    const Epilogue& e = outputs.epilogue;
    const float* first = static_cast<const float*>(e.input_scale) + batch * outputs.scale_batch;
    const int lane = threadIdx.x % cuda::kWarp;
    input_ = first + min(m + lane, outputs.rows - 1) * e.input_scale_row;
    weight_ = static_cast<const float*>(e.weight_scale) +
              min(n, outputs.columns - 1) / kBlockColumns * args.weight_scale_row;
  }

  __device__ __forceinline__ Own of(int slice) const { return {input_[slice] * weight_[slice]}; }
  __device__ __forceinline__ void add(Slice<kTokens>& total, const Slice<kTokens>& slice,
                                      const Own& own) const {
    const int lane = threadIdx.x % cuda::kWarp;
    __syncwarp();  // every lane has read the scales of the slice before
    if (lane < kTokens) staged_[lane] = own.of_token;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kTokens / 2; i += 4) {
      const float2 scales = *reinterpret_cast<const float2*>(staged_ + token_of(i));
      total[i] = math::fused(slice[i], scales.x, total[i]);
      total[i + 1] = math::fused(slice[i + 1], scales.y, total[i + 1]);
      total[i + 2] = math::fused(slice[i + 2], scales.x, total[i + 2]);
      total[i + 3] = math::fused(slice[i + 3], scales.y, total[i + 3]);
    }
  }

 private:
  float* staged_;
  const float* input_;
  const float* weight_;
};

// Multiplies a total by the scales of its tokens, if there are any, in registers.
template <int kTokens>
__device__ __forceinline__ void scale_tokens(Slice<kTokens>& total, const Outputs& outputs,
                                             int batch, std::int64_t m) {
  const Epilogue& e = outputs.epilogue;
  if (!e.input_scale) return;
  const float* from = static_cast<const float*>(e.input_scale) + batch * outputs.scale_batch;
#pragma unroll
  for (int i = 0; i < kTokens / 2; i += i % 2 ? 3 : 1) {
    const float scale = from[min(m + token_of(i), outputs.rows - 1) * e.input_scale_row];
    total[i] = total[i] * scale;
    total[i + 2] = total[i + 2] * scale;
  }
}

// Writes a block's sums to shared memory.
template <class Shape>
__device__ __forceinline__ void store_tokens(float* to, const Slice<Shape::kTokens>& total) {
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  to += warp * kWarpRows + lane / 4;
#pragma unroll
  for (int i = 0; i < Shape::kTokens / 2; ++i)
    to[token_of(i) * Shape::kPitch + i % 4 / 2 * 8] = total[i];
}

// Finishes a block's sums. A warp finishes two tokens at a time; each lane has four columns.
template <class Shape, class Out>
__device__ __forceinline__ void finish_tokens(const Out& out, const float* sums, int tokens,
                                              std::int64_t m, std::int64_t n) {
  constexpr int kLanes = Shape::kColumns / 4, kAtOnce = cuda::kWarp / kLanes;
  static_assert(kAtOnce * kLanes == cuda::kWarp);
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const int first = warp * kAtOnce + lane / kLanes, column = lane % kLanes * 4;
  constexpr int kStep = kGroupWarps * kAtOnce;
  const int count = max(tokens - first + kStep - 1, 0) / kStep;
  const int* own = reinterpret_cast<const int*>(sums) + first * Shape::kPitch + column;
  // No row term is left, so the rows are empty.
  out.finish({own, kStep * Shape::kPitch, count, 0, m + first, kStep, n + column}, {},
             out.columns(n + column));
}

// What the copying thread does. `n`: the first row of the weight. `m`: the first token.
template <class W, class X, class Shape>
__device__ __forceinline__ void copy_stages(const OperandMaps& operands,
                                            const FloatFewRowsRing<Shape>& ring, int batch, int n,
                                            int m) {
  const int first_batch = batch * operands.first_step, second_batch = batch * operands.second_step;
  cuda::CountedCursor cursor = ring.cursor();
#pragma unroll 1
  for (int k_block = 0; k_block < operands.k_blocks; ++k_block) {
    ring.empty[cursor.stage].wait(cursor.parity ^ 1);
    cuda::Barrier& full = ring.full[cursor.stage];
    full.arrive_and_expect(Shape::kStageBytes);
    copy_rows<Shape::kColumns, W>(ring.first(cursor.stage), operands.first, k_block, n, first_batch,
                                  full);
    copy_rows<Shape::kTokens, X>(ring.second(cursor.stage), operands.second, k_block, m,
                                 second_batch, full);
    cursor.advance();
  }
}

// What the warps that multiply do. `m`, `n`: the row and column of the output where the block
// begins.
template <class W, class X, Scales kScales, class Shape>
__device__ __forceinline__ void multiply_tokens(const FloatFewRowsArgs& args,
                                                const FloatFewRowsRing<Shape>& ring, float* scales,
                                                int batch, std::int64_t m, std::int64_t n) {
  constexpr int kTokens = Shape::kTokens;
  using Sums = SliceSums<W, X, FloatFewRowsRing<Shape>, kTokens>;
  const Outputs& outputs = args.outputs;
  const int warp = threadIdx.x / cuda::kWarp;
  touch_columns<kScales>(outputs.epilogue,
                         min(n + threadIdx.x % Shape::kColumns, outputs.columns - 1));
  const int slices = cuda::uniform(args.operands.k_blocks / Sums::Slices::kKBlocks);
  Sums sums(ring, 0);
  Slice<kTokens> total;
  if constexpr (kScales == Scales::OfBlocks)
    sums.sum(total, slices, TokenSlices<kTokens>(args, batch, m, n, scales + warp * kTokens));
  else
    sums.sum(total, slices, PlainSlices{});
  if constexpr (kScales == Scales::OfRowsAndColumns)
    scale_tokens<kTokens>(total, outputs, batch, m);
  // Sums overwrite the stages when every warp's wgmma has read them.
  cuda::named_barrier_wait(1, kGroupThreads);
  float* kept = reinterpret_cast<float*>(ring.stages);
  store_tokens<Shape>(kept, total);
  cuda::named_barrier_wait(1, kGroupThreads);
  const auto tokens = static_cast<int>(min(std::int64_t{kTokens}, outputs.rows - m));
  finish_tokens<Shape>(ScaledOutputs<float, kSumsAre<kScales>>(outputs, batch), kept, tokens, m, n);
}

// W, X: types of the numbers of weights and tokens.
template <class W, class X, Scales kScales, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    multiply_float_few_rows(const __grid_constant__ FloatFewRowsArgs args) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  std::uint8_t* behind = shared + max(args.stages * Shape::kStageBytes, Shape::kSumBytes);
  cuda::Barrier* barriers = reinterpret_cast<cuda::Barrier*>(behind + Shape::kScaleBytes);
  const FloatFewRowsRing<Shape> ring{shared, barriers, barriers + args.stages, args.stages};
  const OperandMaps& operands = args.operands;
  // Blocks with the same rows of the weight have neighbouring numbers, so that these rows are read
  // from memory once.
  const std::uint32_t tile = blockIdx.x;
  const int down = static_cast<int>(tile % args.down);
  const int across = static_cast<int>(tile / args.down % args.across);
  const int batch = static_cast<int>(tile / args.down / args.across);
  const std::int64_t m = std::int64_t{down} * Shape::kTokens;
  const std::int64_t n = std::int64_t{across} * Shape::kColumns;
  if (threadIdx.x == 0) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    ring.open();
    cuda::prefetch_map(operands.first);
    cuda::prefetch_map(operands.second);
  }
  wait_for_input(operands);
  __syncthreads();
  if (threadIdx.x < kGroupThreads)
    multiply_tokens<W, X, kScales>(args, ring, reinterpret_cast<float*>(behind), batch, m, n);
  else if (threadIdx.x == kGroupThreads)
    copy_stages<W, X>(operands, ring, batch, static_cast<int>(n), static_cast<int>(m));
}

}  // namespace planq::linear::sm90
