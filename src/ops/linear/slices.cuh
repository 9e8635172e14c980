// Accumulation::TensorSm90 where rows of input are few and weights are 4-bit codes: the time is
// that of reading these. A block computes 16 columns for all rows; its warps take slices of 128
// terms in turn, each a chain of mma.sync from +0, and threads add up what the warps found, in the
// order of the slices.
#pragma once

#include "cuda/mma.cuh"
#include "ops/linear/lane_codes.cuh"

namespace planq::linear::slices {

inline constexpr int kWarps = 8, kThreads = kWarps * cuda::kWarp;
inline constexpr int kColumns = 16;  // of mma.sync's first factor, which weights are
inline constexpr int kRows = 8;      // of its second
inline constexpr int kMostRows = 2 * kRows;
inline constexpr int kGroup = 16;  // terms of a step
inline constexpr int kSlice = math::kTensorCoreSlice, kGroups = kSlice / kGroup;
inline constexpr int kRun = 64;  // terms that share a statistic
inline constexpr int kRuns = kSlice / kRun;
inline constexpr int kVectorCodes = 2 * cuda::kVectorBytes;
// Weights that are codes.
class CodedWeights {
 public:
  // What a lane has of a slice: column `lane / 2` of the 16 and one half of the terms, as they are
  // read; and the statistics of the columns lane / 4 and lane / 4 + 8, whose codes it multiplies.
  struct Held {
    uint4 codes[2];
    lanes::Statistic own[2][kRuns];
  };
  // Bytes from a column's codes to the next's in shared memory: lanes of eight columns that read
  // two bytes each meet in no bank.
  static constexpr int kPitch = kSlice / 2 + cuda::kVectorBytes;
  static constexpr int kSharedBytes = kColumns * kPitch;  // of a warp
  static constexpr int kBlocks = 3;  // of a multiprocessor, that its registers hold

  __device__ __forceinline__ CodedWeights(const lanes::Args& args, const Product&,
                                          std::int64_t first)
      : args_(args), columns_(args, first), lane_(static_cast<int>(threadIdx.x) % cuda::kWarp) {}

  // Of a slice; terms beyond the weight are codes of 0, which nothing multiplies.
  __device__ __forceinline__ void load(std::int64_t slice, Held& held) const {
    const std::int64_t first = slice * kSlice, half = first + lane_ % 2 * kRun;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      held.codes[i] = make_uint4(0, 0, 0, 0);
      if (half < args_.codes.terms)
        held.codes[i] = columns_.load(lane_ / 2, half + i * kVectorCodes);
#pragma unroll
      for (int run = 0; run < kRuns; ++run)
        if (first + run * kRun < args_.codes.terms)
          held.own[i][run] = columns_.statistic(lane_ / 4 + 8 * i, first + run * kRun);
    }
  }
  // A slice's codes to the warp's shared memory.
  __device__ __forceinline__ void share(const Held& held, std::uint8_t* shared) const {
    auto* to = reinterpret_cast<uint4*>(shared + lane_ / 2 * kPitch + lane_ % 2 * (kRun / 2));
    __syncwarp();
    to[0] = held.codes[0];
    to[1] = held.codes[1];
    __syncwarp();
  }

  // The lane's part of a group as the first factor: terms 4 t .. 4 t + 3 of either column, t being
  // lane % 4. Which term of a group is where changes no bit, as long as both factors agree.
  template <class T>
  __device__ __forceinline__ void numbers(const Held& held, const std::uint8_t* shared, int group,
                                          const float* values, std::uint32_t (&factor)[4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      std::uint16_t codes;
      memcpy(&codes, shared + (lane_ / 4 + 8 * i) * kPitch + group * (kGroup / 2) + lane_ % 4 * 2,
             sizeof codes);
      const lanes::Statistic& own = held.own[i][group / (kRun / kGroup)];
      factor[i] = pair_of<T>(codes, own, values);
      factor[i + 2] = pair_of<T>(static_cast<std::uint16_t>(codes >> 8), own, values);
    }
  }

 private:
  // The two codes of the low byte as numbers, in a word.
  template <class T>
  __device__ __forceinline__ std::uint32_t pair_of(std::uint16_t codes, const lanes::Statistic& own,
                                                   const float* values) const {
    const int first = args_.codes.nibble_order == NibbleOrder::HighFirst ? 4 : 0;
    return cuda::pair_of(lanes::number(args_, codes >> first & 15, own, values),
                         lanes::number(args_, codes >> (4 - first) & 15, own, values), T{});
  }

  const lanes::Args& args_;
  lanes::Columns columns_;
  int lane_;
};

// Four neighbouring terms of a row of 16-bit numbers: pairs of a group, of which lane % 4 says
// which four.
__device__ __forceinline__ uint2 four_terms(const Factor& factor, std::int64_t row,
                                            std::int64_t group) {
  const std::int64_t term = group + static_cast<int>(threadIdx.x) % 4 * 4;
  return *reinterpret_cast<const uint2*>(reinterpret_cast<const std::uint16_t*>(factor.data) +
                                         row * factor.row_stride + term);
}

// Weights that are numbers: a lane reads the pairs that it multiplies.
class NumberWeights {
 public:
  struct Held {
    uint2 pairs[kGroups][2];
  };
  static constexpr int kSharedBytes = 16;  // none is used
  static constexpr int kBlocks = 2;

  __device__ __forceinline__ NumberWeights(const lanes::Args&, const Product& product,
                                           std::int64_t first)
      : product_(product), first_(first + static_cast<int>(threadIdx.x) % cuda::kWarp / 4) {}

  __device__ __forceinline__ void load(std::int64_t slice, Held& held) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::int64_t term = slice * kSlice + group * kGroup;
        const std::int64_t column = min(first_ + 8 * i, product_.n - 1);
        if (term < product_.k) held.pairs[group][i] = four_terms(product_.weight, column, term);
      }
  }
  __device__ __forceinline__ void share(const Held&, std::uint8_t*) const {}
  template <class T>
  __device__ __forceinline__ void numbers(const Held& held, const std::uint8_t*, int group,
                                          const float*, std::uint32_t (&factor)[4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      factor[i] = held.pairs[group][i].x;
      factor[i + 2] = held.pairs[group][i].y;
    }
  }

 private:
  const Product& product_;
  std::int64_t first_;
};

// The lane's part of a group as the second factor: its terms of row lane / 4 of eight.
__device__ __forceinline__ uint2 input_pairs(const Product& product, std::int64_t row,
                                             std::int64_t group) {
  return row < product.m ? four_terms(product.input, row, group) : make_uint2(0, 0);
}

// The sums of a slice: 16 columns by kEights times eight rows.
template <int kEights>
using Sums = float[kEights][4];

template <class T, int kEights, class Weights>
__device__ __forceinline__ void multiply_slice(const Product& product, const Weights& weights,
                                               const typename Weights::Held& held,
                                               const std::uint8_t* shared, const float* values,
                                               std::int64_t slice, Sums<kEights>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const std::int64_t first = slice * kSlice;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (first + group * kGroup >= product.k) break;
    std::uint32_t factor[4];
    weights.template numbers<T>(held, shared, group, values, factor);
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      const uint2 pairs = input_pairs(product, eight * kRows + lane / 4, first + group * kGroup);
      cuda::multiply_add_floats<T>(sums[eight], factor, pairs.x, pairs.y);
    }
  }
}

// A slice's sums to shared memory, by row and column.
template <int kEights>
__device__ __forceinline__ void keep_sums(const Sums<kEights>& sums, float* to) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll
  for (int eight = 0; eight < kEights; ++eight)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[(eight * kRows + lane % 4 * 2 + i % 2) * kColumns + lane / 4 + i / 2 * 8] = sums[eight][i];
}

template <class Weights, int kEights>
struct Shared {
  static constexpr int kSums = kEights * kRows * kColumns;
  alignas(16) std::uint8_t codes[kWarps][Weights::kSharedBytes];
  float sums[2][kWarps][kSums];
  float values[16];
};

// The sum of the output that is the thread's, over all slices.
template <class T, int kEights, class Weights>
__device__ __forceinline__ float sum_slices(const Product& product, const Weights& weights,
                                            Shared<Weights, kEights>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  const std::int64_t slices = (product.k + kSlice - 1) / kSlice;
  float total = 0;
  typename Weights::Held next;
  if (warp < slices) weights.load(warp, next);
#pragma unroll 1
  for (std::int64_t first = 0, round = 0; first < slices; first += kWarps, ++round) {
    auto& kept = shared.sums[round % 2];
    if (first + warp < slices) {
      const typename Weights::Held held = next;
      weights.share(held, shared.codes[warp]);
      if (first + warp + kWarps < slices) weights.load(first + warp + kWarps, next);
      Sums<kEights> sums = {};
      multiply_slice<T, kEights>(product, weights, held, shared.codes[warp], shared.values,
                                 first + warp, sums);
      keep_sums<kEights>(sums, kept[warp]);
    }
    // The sums of the round before last, which these replace, were read before the last barrier.
    __syncthreads();
    if (threadIdx.x < shared.kSums)
      for (int i = 0; i < kWarps && first + i < slices; ++i) total = total + kept[i][threadIdx.x];
  }
  return total;
}

template <class Weights, class T, int kEights>
__global__ void __launch_bounds__(kThreads, Weights::kBlocks)
    stream_slices(const __grid_constant__ lanes::Args args) {
  __shared__ Shared<Weights, kEights> shared;
  const Product product = args.product.at(blockIdx.x / args.across);
  const std::int64_t column = std::int64_t{blockIdx.x % args.across} * kColumns;
  if constexpr (std::is_same_v<Weights, CodedWeights>) {
    if (threadIdx.x < 16) shared.values[threadIdx.x] = lanes::value_of(args, threadIdx.x);
    __syncthreads();
  }
  const float sum = sum_slices<T, kEights>(product, Weights(args, product, column), shared);
  const std::int64_t row = threadIdx.x / kColumns, own = column + threadIdx.x % kColumns;
  if (threadIdx.x < shared.kSums && row < product.m && own < product.n)
    finish_output(OutputPlace(product, row * product.n + own), sum);
}

// Whether lanes read whole fours of terms: of the input, or of both factors.
inline bool has_fours(const Product& product, const Factor& factor, Moved operand) {
  bool batches = true;
  for (int axis = 0; axis < product.batch.rank; ++axis)
    batches &= product.batch.axes[axis].stride[operand] % 4 == 0;
  return factor.term_stride == 1 && factor.row_stride % 4 == 0 && batches &&
         cuda::aligned_to(factor.data, 8);
}
// A few rows, and vectors of codes under statistics that runs of terms share, or numbers.
inline bool takes(const Product& product) {
  if (product.m > kMostRows || !has_fours(product, product.input, kMovedInput)) return false;
  const WeightCodes* codes = product.weight.codes;
  if (!codes) return product.k % kGroup == 0 && has_fours(product, product.weight, kMovedWeight);
  return product.k % kRun == 0 && codes->segment_size % kRun == 0 && lanes::has_vectors(*codes);
}

template <class Weights, class T, class Visit>
Status visit_rows(std::int64_t rows, const Visit& visit) {
  return rows <= kRows ? visit(stream_slices<Weights, T, 1>) : visit(stream_slices<Weights, T, 2>);
}
template <class Weights, class Visit>
Status visit_kernel(DType values, std::int64_t rows, const Visit& visit) {
  return values == DType::Float16 ? visit_rows<Weights, math::Half>(rows, visit)
                                  : visit_rows<Weights, math::Bfloat16>(rows, visit);
}

template <class Weights>
Status preload(DType values) {
  for (const int rows : {kRows, kMostRows})
    PLANQ_TRY(
        visit_kernel<Weights>(values, rows, [](auto kernel) { return cuda::preload(kernel); }));
  return Status::success();
}
template <class Weights>
Status launch(const Product& product, Bound& bound) {
  const lanes::Args args = lanes::args_of(product, kColumns);
  const cuda::Grid grid{.blocks = args.across * product.batch.size(), .threads = dim3(kThreads)};
  return visit_kernel<Weights>(product.weight.dtype, product.m, [&](auto kernel) {
    return cuda::launch(kernel, grid, args, bound);
  });
}

}  // namespace planq::linear::slices
