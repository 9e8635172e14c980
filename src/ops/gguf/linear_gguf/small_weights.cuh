// linear_gguf of weights that are so small that it is the latency that counts, not the bytes. A
// warp has a row of the weight, which it copies to shared memory whole. A lane has a group of 32
// elements of it, so four spans at a time, and multiplies their codes by dp4a with those of one row
// of the input, or of eight. Then a chain is put together from the sub-blocks of a span, one after
// the other: of one row by all lanes of the span, of eight by one lane for each row and span.
//
// Factors, their order and all roundings are those of few_rows_item.cuh.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/architectures.h"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "ops/gguf/linear_gguf/chains.cuh"
#include "ops/gguf/linear_gguf/launch.h"
#include "ops/linear/sm80/operands.h"

namespace planq::linear_gguf {

inline constexpr int kSmallWarps = 8;  // and so many rows of the weight, of a block
// Beyond these few_rows.cuh and tiles.cuh are faster.
inline constexpr int64_t kMostSmallRows = 64, kMostSmallBytes = int64_t{4} << 20;
// Of shared memory: a block of every GPU has as much.
inline constexpr int kMostSmallShared = 96 << 10;
// Rows of the input that a block has, by eight: what is unpacked of the weight serves all of them.
inline constexpr int kSmallBlockRows = 16;

struct SmallWeightArgs {
  Gemm gemm;
  std::uint32_t blocks = 0;  // of the same rows of the input
  std::int32_t groups = 0;   // of a row
  std::int32_t row_bytes = 0, pitch = 0;
  bool has_input_vectors = false;  // rows of the input are aligned vectors
  bool stores_vectors = false;     // four neighbouring outputs are an aligned vector
  bool waits = false;              // the input is written by the kernel before
};

// Four products of codes, of the weight and of the input, onto a sum.
template <bool kUnsigned>
__device__ __forceinline__ int dot_of_words(std::uint32_t weight, std::uint32_t input, int sum) {
  if constexpr (!kUnsigned) {
    return __dp4a(static_cast<int>(weight), static_cast<int>(input), sum);
  } else {
#if defined(__CUDA_ARCH__)
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(weight), "r"(input));
#else
    for (int i = 0; i < 32; i += 8)
      sum += static_cast<std::uint8_t>(weight >> i) * static_cast<std::int8_t>(input >> i);
#endif
    return sum;
  }
}

// A lane's group of a row of the input: zeros where the row has no such group.
struct InputGroup {
  std::uint32_t words[kGroup / 4] = {};
  float scale = 0;

  __device__ __forceinline__ InputGroup(const SmallWeightArgs& args, int64_t row, int group) {
    if (group >= args.groups) return;
    const Gemm& gemm = args.gemm;
    const std::uint8_t* const from =
        gemm.input.data + row * gemm.input.row_stride + int64_t{group} * kGroup;
    scale = static_cast<const float*>(
        gemm.epilogue.input_scale)[row * gemm.epilogue.input_scale_row + group];
#pragma unroll
    for (int i = 0; i < kGroup / 4; i += 4) {
      if (args.has_input_vectors) {
        const uint4 four = *reinterpret_cast<const uint4*>(from + i * 4);
        words[i] = four.x, words[i + 1] = four.y, words[i + 2] = four.z, words[i + 3] = four.w;
      } else {
#pragma unroll
        for (int e = 0; e < 16; ++e)
          words[i + e / 4] |= std::uint32_t{from[i * 4 + e]} << e % 4 * 8;
      }
    }
  }
};

// A lane's group of the row of the weight that begins at `row`: zeros where there is no such group.
template <class B>
class WeightGroup {
  using F = Fragments<B>;
  using Row = SharedRow<false>;
  static constexpr int kSpanBytes = kSpan / B::kElements * B::kBytes;
  static constexpr int kWords = B::kSubBlock / 4;

 public:
  static constexpr int kSpanGroups = kSpan / kGroup;
  static constexpr int kSubBlocks = kGroup / B::kSubBlock;  // of a group
  static constexpr bool kHasMinimum = gguf::Run<B>::kHasMinimum;

  __device__ __forceinline__ WeightGroup(const SmallWeightArgs& args, cuda::SharedAddress row,
                                         int group)
      : first_(group % kSpanGroups * kSubBlocks) {
    if (group >= args.groups) return;
    const Row span(row + static_cast<cuda::SharedAddress>(group / kSpanGroups * kSpanBytes));
    const Row two[2] = {span, span};
#pragma unroll
    for (int i = 0; i < kSubBlocks; ++i)
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        CodeWords<B> codes;
        F::template load<false>(two, t, first_ + i, codes);
        words_[i * kWords + t] = codes[0];
        if constexpr (kWords == 8) words_[4 + t] = codes[2];
      }
    // Of two sub-blocks of 16, both are this lane's; of 32, a pair belongs to two lanes.
    float pairs[2], minima[2] = {};
    PairScales<B>::load(span, first_ / 8, first_ % 8 / 2, pairs, minima);
#pragma unroll
    for (int i = 0; i < kSubBlocks; ++i) {
      const bool second = kSubBlocks == 2 ? i == 1 : first_ % 2 == 1;
      scales_[i] = second ? pairs[1] : pairs[0];
      minima_[i] = second ? minima[1] : minima[0];
    }
  }
  // What multiplies the sum of products of sub-block i, and that sum, which is exact.
  __device__ __forceinline__ float2 factors(int i, const InputGroup& input) const {
    int sum = 0;
#pragma unroll
    for (int j = 0; j < kWords; ++j)
      sum = dot_of_words<F::kUnsigned>(words_[i * kWords + j], input.words[i * kWords + j], sum);
    // Codes are a power of two too large.
    const std::int32_t start = start_of<B>(first_ + i);
    return {scales_[i] * input.scale, float_of(start + sum, start)};
  }
  // Likewise of the minimum.
  __device__ __forceinline__ float2 minimum_factors(int i, const InputGroup& input) const {
    int sum = 0;
#pragma unroll
    for (int j = 0; j < kWords; ++j)
      sum = __dp4a(static_cast<int>(input.words[i * kWords + j]), 0x01010101, sum);
    return {minima_[i], input.scale * static_cast<float>(sum)};
  }

 private:
  int first_;  // sub-block, of the span
  std::uint32_t words_[kGroup / 4] = {};
  float scales_[kSubBlocks] = {}, minima_[kSubBlocks] = {};
};

// The product of a row of the weight with `kInputs` rows of the input.
template <class B, int kInputs>
struct SmallProduct;

template <class B>
struct SmallProduct<B, 1> {
  using Group = WeightGroup<B>;
  static constexpr int kExchangeBytes = 0;

  // The same in all lanes. `input`: of the first groups.
  __device__ __forceinline__ static float of(const SmallWeightArgs& args, cuda::SharedAddress row,
                                             int64_t input_row, InputGroup input, float2*) {
    float total = 0;
#pragma unroll 1
    for (int first = 0; first < args.groups; first += cuda::kWarp) {
      const int group = first + own_lane();
      const InputGroup next(args, input_row, group + cuda::kWarp);
      const float chain = chain_of(Group(args, row, group), input);
#pragma unroll
      for (int i = 0; i < cuda::kWarp; i += Group::kSpanGroups) {
        const float of_span = __shfl_sync(cuda::kAllLanes, chain, i);
        if (first + i < args.groups) total = total + of_span;
      }
      input = next;
    }
    return total;
  }

 private:
  // Of the span that the lane is in.
  __device__ __forceinline__ static float chain_of(const Group& weight, const InputGroup& input) {
    constexpr int kSubBlocks = Group::kSubBlocks, kSpanGroups = Group::kSpanGroups;
    float2 own[kSubBlocks], minima[kSubBlocks] = {};
#pragma unroll
    for (int i = 0; i < kSubBlocks; ++i) {
      own[i] = weight.factors(i, input);
      if constexpr (Group::kHasMinimum) minima[i] = weight.minimum_factors(i, input);
    }
    const int lane = own_lane() / kSpanGroups * kSpanGroups;
    const auto of_lane = [&](float x, int i) { return __shfl_sync(cuda::kAllLanes, x, lane + i); };
    float chain = 0;
#pragma unroll
    for (int i = 0; i < kSpanGroups; ++i)
#pragma unroll
      for (int j = 0; j < kSubBlocks; ++j) {
        chain = __fmaf_rn(of_lane(own[j].x, i), of_lane(own[j].y, i), chain);
        if constexpr (Group::kHasMinimum)
          chain = __fmaf_rn(of_lane(minima[j].x, i), of_lane(minima[j].y, i), chain);
      }
    return chain;
  }
};

// Factors go through shared memory. Chains lie so far apart that lanes do not meet in a bank.
template <class B>
struct SmallProduct<B, 8> {
  using Group = WeightGroup<B>;
  static constexpr int kInputs = 8, kSpans = cuda::kWarp / Group::kSpanGroups;
  static constexpr int kSubBlocks = Group::kSpanGroups * Group::kSubBlocks;  // of a span
  static constexpr int kPitch = kSubBlocks + 1, kFactors = kInputs * kSpans * kPitch;
  static constexpr int kExchangeBytes = (Group::kHasMinimum ? 2 : 1) * kFactors * 8;
  static_assert(kInputs * kSpans == cuda::kWarp);

  // Of row lane / 4 of these eight; rows behind the last of the input are the last one again.
  __device__ __forceinline__ static float of(const SmallWeightArgs& args, cuda::SharedAddress row,
                                             int64_t input_row, const InputGroup&,
                                             float2* exchange) {
    float total = 0;
#pragma unroll 1
    for (int first = 0; first < args.groups; first += cuda::kWarp) {
      const int group = first + own_lane();
      write(args, Group(args, row, group), input_row, group, exchange);
      __syncwarp();
      const float chain = chain_of(exchange + own_lane() * kPitch);
#pragma unroll
      for (int i = 0; i < kSpans; ++i) {
        const float of_span = __shfl_sync(cuda::kAllLanes, chain, own_lane() / kSpans * kSpans + i);
        if (first + i * Group::kSpanGroups < args.groups) total = total + of_span;
      }
      __syncwarp();
    }
    return total;
  }

 private:
  __device__ __forceinline__ static void write(const SmallWeightArgs& args, const Group& weight,
                                               int64_t input_row, int group, float2* exchange) {
    float2* const own = exchange + own_lane() / Group::kSpanGroups * kPitch +
                        own_lane() % Group::kSpanGroups * Group::kSubBlocks;
#pragma unroll 4
    for (int r = 0; r < kInputs; ++r) {
      const InputGroup input(args, min(input_row + r, args.gemm.m - 1), group);
      float2* const to = own + r * kSpans * kPitch;
#pragma unroll
      for (int i = 0; i < Group::kSubBlocks; ++i) {
        to[i] = weight.factors(i, input);
        if constexpr (Group::kHasMinimum) to[kFactors + i] = weight.minimum_factors(i, input);
      }
    }
  }
  __device__ __forceinline__ static float chain_of(const float2* factors) {
    float chain = 0;
#pragma unroll
    for (int i = 0; i < kSubBlocks; ++i) {
      const float2 own = factors[i];
      chain = __fmaf_rn(own.x, own.y, chain);
      if constexpr (Group::kHasMinimum) {
        const float2 minimum = factors[kFactors + i];
        chain = __fmaf_rn(minimum.x, minimum.y, chain);
      }
    }
    return chain;
  }
};

// Begins to copy the warp's row of the weight to shared memory, and returns where it begins there.
// Rows behind the last are the last one again.
__device__ __forceinline__ cuda::SharedAddress copy_weight_row(const SmallWeightArgs& args,
                                                               int64_t row,
                                                               cuda::SharedAddress to) {
  const Gemm& gemm = args.gemm;
  const std::uint8_t* const from = gemm.weight.data + min(row, gemm.n - 1) * gemm.weight.row_stride;
  const int past = cuda::misalignment<16>(from);
#pragma unroll 1
  for (int at = own_lane() * 16; at < past + args.row_bytes; at += cuda::kWarp * 16)
    cuda::copy_async(to + static_cast<cuda::SharedAddress>(at), from - past + at);
  cuda::end_copy_group();
  return to + static_cast<cuda::SharedAddress>(past);
}

template <class B, int kInputs>
__global__ void __launch_bounds__(kSmallWarps* cuda::kWarp)
    multiply_small_weight(const __grid_constant__ SmallWeightArgs args) {
  using Product = SmallProduct<B, kInputs>;
  __shared__ float4 products[kInputs][kSmallWarps / 4];
  cuda::let_dependents_start();
  const Gemm& gemm = args.gemm;
  const int64_t column = int64_t{blockIdx.x % args.blocks} * kSmallWarps;
  auto* const shared = static_cast<std::uint8_t*>(cuda::dynamic_shared());
  auto* const exchange = reinterpret_cast<float2*>(shared + own_warp() * Product::kExchangeBytes);
  const cuda::SharedAddress weight =
      copy_weight_row(args, column + own_warp(),
                      cuda::shared_address_of(shared + kSmallWarps * Product::kExchangeBytes +
                                              own_warp() * args.pitch));
  if (args.waits) cuda::wait_for_previous();
  const int64_t first = int64_t{blockIdx.x / args.blocks} * kSmallBlockRows;
  const InputGroup head(args, first, own_lane());
  cuda::wait_for_copy_groups<0>();
  __syncwarp();
#pragma unroll 1
  for (int64_t row = first; row < gemm.m && row < first + kSmallBlockRows; row += kInputs) {
    const float product = Product::of(args, weight, row, head, exchange);
    constexpr int kLanes = cuda::kWarp / kInputs;  // that have the same row of the input
    if (own_lane() % kLanes == 0)
      reinterpret_cast<float*>(products[own_lane() / kLanes])[own_warp()] = product;
    __syncthreads();
    constexpr int kFours = kSmallWarps / 4;
    const auto thread = static_cast<int>(threadIdx.x), own = thread / kFours;
    if (own < kInputs && row + own < gemm.m) {
      float four[4];
      load_four_floats(reinterpret_cast<const float*>(&products[own][thread % kFours]), four);
      store_four(gemm, row + own, column + thread % kFours * 4, four, args.stores_vectors);
    }
    __syncthreads();
  }
}

// --- The launch ----------------------------------------------------------------------------------

template <class B>
int small_row_bytes(const Gemm& gemm) {
  return static_cast<int>(gemm.k / B::kElements * B::kBytes);
}
// Rows begin anywhere in a vector, and a word behind the last may be read.
inline int small_pitch(int row_bytes) { return (row_bytes + 15 + 8 + 15) / 16 * 16; }
template <class B, int kInputs>
int64_t small_shared_bytes(const Gemm& gemm) {
  return kSmallWarps * (int64_t{SmallProduct<B, kInputs>::kExchangeBytes} +
                        small_pitch(small_row_bytes<B>(gemm)));
}

template <class B, int kInputs>
Status launch_small_weight(const Gemm& gemm, const Device& device, Bound& bound) {
  SmallWeightArgs args;
  args.gemm = gemm;
  args.blocks = static_cast<std::uint32_t>(cuda::ceil_div(gemm.n, int64_t{kSmallWarps}));
  args.groups = static_cast<std::int32_t>(gemm.k / kGroup);
  args.row_bytes = small_row_bytes<B>(gemm);
  args.pitch = small_pitch(args.row_bytes);
  using linear::moves_aligned;
  args.has_input_vectors = (gemm.m == 1 || gemm.input.row_stride % 16 == 0) &&
                           moves_aligned(gemm, linear::kMovedInput, gemm.input.data, 16, 2);
  const int bytes = storage_bytes(gemm.output_dtype), vector = std::min(4 * bytes, 16);
  args.stores_vectors = (gemm.m == 1 || gemm.output_row * bytes % vector == 0) &&
                        moves_aligned(gemm, linear::kMovedOutput, gemm.output, vector, 2 * bytes);
  args.waits = bound.follows();
  const cuda::Grid grid = {.blocks = args.blocks * cuda::ceil_div(gemm.m, int64_t{kSmallBlockRows}),
                           .threads = dim3(kSmallWarps * cuda::kWarp),
                           .dependent = args.waits && has_dependent_launches(device.arch),
                           .shared_bytes = static_cast<int>(small_shared_bytes<B, kInputs>(gemm))};
  return cuda::launch(multiply_small_weight<B, kInputs>, grid, args, bound);
}

template <class B>
bool takes_small_weight(const Gemm& gemm) {
  if constexpr (Fragments<B>::kGeneric) {
    return false;
  } else {
    if (gemm.m > kMostSmallRows || gemm.batch.size() != 1 || gemm.k == 0 ||
        gemm.k > int64_t{1} << 20)
      return false;
    return int64_t{small_row_bytes<B>(gemm)} * gemm.n <= kMostSmallBytes &&
           small_shared_bytes<B, 8>(gemm) <= kMostSmallShared;
  }
}
template <class B>
Status launch_small_weight(const Gemm& gemm, const Device& device, Bound& bound) {
  return gemm.m == 1 ? launch_small_weight<B, 1>(gemm, device, bound)
                     : launch_small_weight<B, 8>(gemm, device, bound);
}
template <class B>
Status preload_small_weight() {
  PLANQ_TRY((cuda::preload(multiply_small_weight<B, 1>, kMostSmallShared)));
  return cuda::preload(multiply_small_weight<B, 8>, kMostSmallShared);
}

}  // namespace planq::linear_gguf
