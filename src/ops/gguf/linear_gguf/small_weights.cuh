// Products with weights that are so small that it is the latency that counts, not the bytes: all
// that have one input are one launch. Here is what all such launches share, and the kernel for one
// row of the input: small_tiles.cuh has the one for more.
//
// A warp has a row of a weight, which it copies to shared memory whole. A lane has a group of 32
// elements of it, so four spans at a time, and multiplies their codes by dp4a with those of the
// input. Then all lanes of a span put its chain together, one sub-block after the other.
//
// One row of floats becomes codes in the kernel: a block makes all of them, in shared memory, with
// the bits of dynamic_range_quantize.
//
// Factors, their order and all roundings are those of few_rows_item.cuh.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "core/architectures.h"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "ops/affine/row_codes.cuh"
#include "ops/gguf/linear_gguf/chains.cuh"
#include "ops/gguf/linear_gguf/vectors.h"
#include "ops/gguf/products/product.h"

namespace planq::linear_gguf {

inline constexpr int kSmallWarps = 8;  // of a block
inline constexpr int kSmallThreads = kSmallWarps * cuda::kWarp;
// Beyond these few_rows.cuh and tiles.cuh are faster: for one row as measured, for more by an
// estimate. With kLeastTileRows rows, weights may have any number of bytes, by an estimate too.
inline constexpr int64_t kMostSmallRows = 64, kMostSmallBytes = int64_t{8} << 20,
                         kLeastTileRows = 9;
// Of shared memory, beside what a block has of it for other variables.
inline constexpr int kMostSmallShared = 96 << 10;
#define PLANQ_BLOCK_SHARED(arch, multiprocessors, threads, shared, ...) shared,
static_assert(std::ranges::min({PLANQ_GPU_ARCHITECTURES(PLANQ_BLOCK_SHARED)}) >=
                  kMostSmallShared + 1024,
              "a block of every GPU has as much");
#undef PLANQ_BLOCK_SHARED
// What a weight has of its own. Blocks of a launch are numbered weight after weight.
struct SmallWeight {
  const std::uint8_t* data = nullptr;
  int64_t row_stride = 0;  // in bytes
  std::uint8_t* output = nullptr;
  const void *bias = nullptr, *residual = nullptr;
  std::int32_t rows = 0, row_bytes = 0;
  GgufType type = GgufType::Q8_0;
  bool stores_vectors = false;  // four neighbouring outputs are an aligned vector
  bool is_aligned = false;      // rows begin at multiples of 8 bytes
};

struct SmallWeightsArgs {
  Gemm gemm;  // of one of the weights
  SmallWeight weights[gguf::kMostProducts];
  // Of each weight; behind the last, what is no block's number.
  std::uint32_t first_blocks[gguf::kMostProducts];
  std::uint32_t blocks = 0;  // of the same rows of the input
  std::int32_t groups = 0;   // of a row
  // Of shared memory: codes and scales of floats; a row of a weight.
  std::int32_t input_bytes = 0, pitch = 0;
  bool has_input_vectors = false;  // rows of the input are aligned vectors
  bool follows = false;            // a kernel of the same plan is before this one
};
static_assert(sizeof(SmallWeightsArgs) <= 4096, "arguments of a kernel");

// Calls use(Block<type>{}) for a type that the kernel has.
template <class Use>
PLANQ_HD auto with_small_block(GgufType type, const Use& use) {
  switch (type) {
    case GgufType::Q4_0:
      return use(gguf::Block<GgufType::Q4_0>{});
    case GgufType::Q4_1:
      return use(gguf::Block<GgufType::Q4_1>{});
    case GgufType::Q5_0:
      return use(gguf::Block<GgufType::Q5_0>{});
    case GgufType::Q5_1:
      return use(gguf::Block<GgufType::Q5_1>{});
    case GgufType::Q4_K:
      return use(gguf::Block<GgufType::Q4_K>{});
    case GgufType::Q5_K:
      return use(gguf::Block<GgufType::Q5_K>{});
    case GgufType::Q6_K:
      return use(gguf::Block<GgufType::Q6_K>{});
    default:
      return use(gguf::Block<GgufType::Q8_0>{});
  }
}
// Whether it has: those whose codes are not made one by one.
constexpr bool is_small_type(GgufType type) {
  switch (type) {
    case GgufType::Q4_0:
    case GgufType::Q4_1:
    case GgufType::Q5_0:
    case GgufType::Q5_1:
    case GgufType::Q8_0:
    case GgufType::Q4_K:
    case GgufType::Q5_K:
    case GgufType::Q6_K:
      return true;
    default:
      return false;
  }
}

template <int... kTypes>
constexpr bool small_types_have_fragments(std::integer_sequence<int, kTypes...>) {
  return ((is_small_type(GgufType{kTypes}) != Fragments<gguf::Block<GgufType{kTypes}>>::kGeneric) &&
          ...);
}
static_assert(small_types_have_fragments(
    std::make_integer_sequence<int, static_cast<int>(kNames<GgufType>.size())>{}));

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

// --- The input -----------------------------------------------------------------------------------

// How one row of floats becomes codes: as gguf::prepare_parts() asks of dynamic_range_quantize.
PLANQ_HD math::AffineSpec<float> input_spec() {
  return {.q_min = -127,
          .q_max = 127,
          .steps = 254,
          .q_low = -127,
          .q_high = 127,
          .output_dtype = DType::Int8,
          .scale_dtype = DType::Float32,
          .mode = Mode::Symmetric,
          .quotient = Quotient::Ratio,
          .nonfinite = NonFinite::Propagate,
          .include_zero = true,
          .convention = Convention::Planq,
          .scale_ub = std::numeric_limits<float>::quiet_NaN()};
}

// A row's codes in shared memory, and behind them its scales.
struct InputCodes {
  std::uint8_t* codes;
  float* scales;

  __device__ __forceinline__ explicit InputCodes(const SmallWeightsArgs& args)
      : codes(static_cast<std::uint8_t*>(cuda::dynamic_shared())),
        scales(reinterpret_cast<float*>(codes + args.groups * kGroup)) {}
};

template <class T>
__device__ __forceinline__ uint4 input_vector(const T* from, bool is_aligned) {
  if (is_aligned) return *reinterpret_cast<const uint4*>(from);
  T each[cuda::kPerVector<T>];
#pragma unroll
  for (int i = 0; i < cuda::kPerVector<T>; ++i) each[i] = from[i];
  uint4 vector;
  memcpy(&vector, each, sizeof vector);
  return vector;
}

// The codes of a vector of a group whose numbers are not ordinary.
template <class T>
__device__ __noinline__ cuda::Word<cuda::kPerVector<T>> rare_codes(
    uint4 v, math::SegmentParameters<float> own) {
  return affine::slow_codes<T, affine::Codes::Byte>(v, input_spec(), own, false,
                                                    NibbleOrder::LowFirst);
}

// Makes codes of the row. Lanes that have the vectors of a group are neighbours.
template <class T>
__device__ __forceinline__ void write_codes(const SmallWeightsArgs& args, const InputCodes& to) {
  using affine::Codes;
  constexpr int kCount = cuda::kPerVector<T>, kLanes = kGroup / kCount;
  const math::AffineSpec<float> spec = input_spec();
  const auto* const input = reinterpret_cast<const T*>(args.gemm.input.data);
  const int vectors = args.groups * kLanes;
#pragma unroll 1
  for (int first = own_warp() * cuda::kWarp; first < vectors; first += kSmallThreads) {
    const int own = first + own_lane();
    const bool exists = own < vectors;
    const uint4 v = exists ? input_vector(input + own * kCount, args.has_input_vectors)
                           : make_uint4(0, 0, 0, 0);
    const auto parameters = affine::group_parameters<T>(spec, kGroup, v, exists);
    if (!exists) continue;
    // No quotient is beyond the bounds.
    const auto word =
        parameters.fast
            ? affine::encode<T, Codes::Byte, false, false, affine::Bounds::None>(
                  v, affine::Numbers<float>(parameters.own, spec), spec, NibbleOrder::LowFirst)
            : rare_codes<T>(v, parameters.own);
    *reinterpret_cast<cuda::Word<kCount>*>(to.codes + own * kCount) = word;
    if (own % kLanes == 0) to.scales[own / kLanes] = parameters.own.scale;
  }
}
__device__ __forceinline__ void write_codes(const SmallWeightsArgs& args) {
  const InputCodes to(args);
  if (args.gemm.input.dtype == DType::Float32)
    write_codes<float>(args, to);
  else if (args.gemm.input.dtype == DType::Float16)
    write_codes<math::Half>(args, to);
  else
    write_codes<math::Bfloat16>(args, to);
  __syncthreads();
}

// A lane's group of the row of the input: zeros where there is no such group. kFloats: of the row
// that was made codes.
template <bool kFloats>
struct InputGroup {
  std::uint32_t words[kGroup / 4] = {};
  float scale = 0;

  InputGroup() = default;
  __device__ __forceinline__ InputGroup(const SmallWeightsArgs& args, int group) {
    if (group >= args.groups) return;
    if constexpr (kFloats) {
      const InputCodes from(args);
      scale = from.scales[group];
      load_vectors(from.codes + group * kGroup);
    } else {
      const Gemm& gemm = args.gemm;
      const std::uint8_t* const from = gemm.input.data + int64_t{group} * kGroup;
      scale = static_cast<const float*>(gemm.epilogue.input_scale)[group];
      if (args.has_input_vectors)
        load_vectors(from);
      else
        load_bytes(from);
    }
  }

 private:
  __device__ __forceinline__ void load_vectors(const std::uint8_t* from) {
#pragma unroll
    for (int i = 0; i < kGroup / 4; i += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(from + i * 4);
      words[i] = four.x, words[i + 1] = four.y, words[i + 2] = four.z, words[i + 3] = four.w;
    }
  }
  __device__ __forceinline__ void load_bytes(const std::uint8_t* from) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) words[i / 4] |= std::uint32_t{from[i]} << i % 4 * 8;
  }
};

// --- The weight ----------------------------------------------------------------------------------

// A row that a warp copies. Rows behind the last are the last one again.
class WeightRow {
 public:
  __device__ __forceinline__ WeightRow(const SmallWeight& weight, int row)
      : from_(weight.data + min(row, weight.rows - 1) * weight.row_stride),
        bytes_(weight.row_bytes),
        past_(cuda::misalignment<16>(from_)),
        room_(room_in_weight(from_ - past_, end_of_weight(weight.data, weight.rows,
                                                          weight.row_stride, weight.row_bytes))) {}

  // Brings the row to L2, each lane parts of lines, where a kernel may begin before those ahead of
  // it have ended.
  __device__ __forceinline__ void prefetch() const {
    if constexpr (!PLANQ_HAS_DEPENDENT_LAUNCHES) return;
    constexpr int kPart = 32;
    const int past = cuda::misalignment<kPart>(from_);
#pragma unroll 1
    for (int at = own_lane() * kPart; at < past + bytes_; at += cuda::kWarp * kPart)
      cuda::prefetch(from_ - past + at);
  }
  // Begins to copy the row to shared memory, and returns where it begins there. The caller ends the
  // group of copies.
  __device__ __forceinline__ cuda::SharedAddress copy(cuda::SharedAddress to) const {
#pragma unroll 1
    for (int at = own_lane() * 16; at < past_ + bytes_; at += cuda::kWarp * 16)
      copy_weight_vector(to + static_cast<cuda::SharedAddress>(at), from_ - past_ + at, room_ - at);
    return to + static_cast<cuda::SharedAddress>(past_);
  }
  // Until a row that this warp copied is there; no read of it goes before this.
  __device__ __forceinline__ static void wait(cuda::SharedAddress& row) {
    cuda::wait_for_copy_groups<0>();
    __syncwarp();
    cuda::keep(row);
  }

 private:
  const std::uint8_t* from_;
  int bytes_, past_, room_;  // the last from the vector that the row begins in
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

  __device__ __forceinline__ WeightGroup(const SmallWeightsArgs& args, cuda::SharedAddress row,
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
  template <class Input>
  __device__ __forceinline__ float2 factors(int i, const Input& input) const {
    int sum = 0;
#pragma unroll
    for (int j = 0; j < kWords; ++j)
      sum = dot_of_words<F::kUnsigned>(words_[i * kWords + j], input.words[i * kWords + j], sum);
    // Codes are a power of two too large.
    const std::int32_t start = start_of<B>(first_ + i);
    return {scales_[i] * input.scale, float_of(start + sum, start)};
  }
  // Likewise of the minimum.
  template <class Input>
  __device__ __forceinline__ float2 minimum_factors(int i, const Input& input) const {
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

// --- The product of two rows ---------------------------------------------------------------------

template <class B, bool kFloats>
struct SmallProduct {
  using Group = WeightGroup<B>;
  using Input = InputGroup<kFloats>;

  // The same in all lanes. The first groups of the input are loaded while the weight is copied.
  __device__ __forceinline__ static float of(const SmallWeightsArgs& args,
                                             cuda::SharedAddress row) {
    float total = 0;
    Input input;
#pragma unroll 1
    for (int first = -cuda::kWarp; first < args.groups; first += cuda::kWarp) {
      const int group = first + own_lane();
      const Input next(args, group + cuda::kWarp);
      if (first < 0)
        WeightRow::wait(row);
      else
        add_spans(args, first, chain_of(Group(args, row, group), input), total);
      input = next;
    }
    return total;
  }

 private:
  __device__ __forceinline__ static void add_spans(const SmallWeightsArgs& args, int first,
                                                   float chain, float& total) {
#pragma unroll
    for (int i = 0; i < cuda::kWarp; i += Group::kSpanGroups) {
      const float of_span = __shfl_sync(cuda::kAllLanes, chain, i);
      if (first + i < args.groups) total = total + of_span;
    }
  }
  // Of the span that the lane is in.
  __device__ __forceinline__ static float chain_of(const Group& weight, const Input& input) {
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

// --- Blocks --------------------------------------------------------------------------------------

// The number of the weight that a block has rows of.
__device__ __forceinline__ int number_of_weight(const SmallWeightsArgs& args, std::uint32_t block) {
  int number = 0;
#pragma unroll
  for (int i = 1; i < gguf::kMostProducts; ++i) number += block >= args.first_blocks[i] ? 1 : 0;
  return number;
}

// Finishes four neighbouring sums of a row, and stores those that are outputs.
__device__ __forceinline__ void store_small_four(const SmallWeightsArgs& args,
                                                 const SmallWeight& weight, int64_t row, int column,
                                                 const float (&four)[4]) {
  Gemm gemm = args.gemm;
  gemm.n = weight.rows;
  gemm.output = weight.output;
  gemm.epilogue.bias = weight.bias;
  gemm.epilogue.residual = weight.residual;
  store_four(gemm, row, column, four, weight.stores_vectors);
}

// --- The kernel for one row ----------------------------------------------------------------------

// A block has a row of the weight for each warp. kFloats: the row of the input has floats.
template <bool kFloats>
__global__ void __launch_bounds__(kSmallThreads)
    multiply_small_weights(const __grid_constant__ SmallWeightsArgs args) {
  __shared__ float4 products[kSmallWarps / 4];
  if (args.follows) cuda::let_dependents_start();
  const int number = number_of_weight(args, blockIdx.x);
  const SmallWeight& weight = args.weights[number];
  const int column = static_cast<int>(blockIdx.x - args.first_blocks[number]) * kSmallWarps;
  auto* const shared = static_cast<std::uint8_t*>(cuda::dynamic_shared()) + args.input_bytes;
  const WeightRow row_of_weight(weight, column + own_warp());
  if (!args.follows) {
    row_of_weight.prefetch();
    cuda::follow_previous();
  }
  const cuda::SharedAddress copied =
      row_of_weight.copy(cuda::shared_address_of(shared + own_warp() * args.pitch));
  cuda::end_copy_group();
  if (args.follows) cuda::wait_for_previous();
  if constexpr (kFloats) write_codes(args);
  const float product = with_small_block(weight.type, [&](auto type) {
    return SmallProduct<decltype(type), kFloats>::of(args, copied);
  });
  if (own_lane() == 0) reinterpret_cast<float*>(products)[own_warp()] = product;
  __syncthreads();
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread >= kSmallWarps / 4) return;
  float four[4];
  load_four_floats(reinterpret_cast<const float*>(&products[thread]), four);
  store_small_four(args, weight, 0, column + thread * 4, four);
}

}  // namespace planq::linear_gguf
