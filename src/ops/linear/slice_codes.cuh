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
// Bytes from a column's codes to the next's in shared memory: lanes of eight columns that read two
// bytes each meet in no bank.
inline constexpr int kPitch = kSlice / 2 + cuda::kVectorBytes;

// What a lane has of a slice: column `lane / 2` of the 16 and one half of the terms, as they are
// read; and the statistics of the columns lane / 4 and lane / 4 + 8, whose codes it multiplies.
struct Held {
  uint4 codes[2];
  lanes::Statistic own[2][kRuns];
};

class Weights {
 public:
  __device__ __forceinline__ Weights(const lanes::Args& args, std::int64_t first)
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

// The lane's part of a group as the second factor: those terms of row lane / 4 of eight.
__device__ __forceinline__ uint2 input_pairs(const Product& product, std::int64_t row,
                                             std::int64_t term) {
  if (row >= product.m) return make_uint2(0, 0);
  const auto* from = reinterpret_cast<const std::uint16_t*>(product.input.data) +
                     row * product.input.row_stride + term;
  return *reinterpret_cast<const uint2*>(from);
}

// The sums of a slice: 16 columns by kEights times eight rows.
template <int kEights>
using Sums = float[kEights][4];

template <class T, int kEights>
__device__ __forceinline__ void multiply_slice(const Product& product, const Weights& weights,
                                               const Held& held, const std::uint8_t* shared,
                                               const float* values, std::int64_t slice,
                                               Sums<kEights>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const std::int64_t first = slice * kSlice;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (first + group * kGroup >= product.k) break;
    std::uint32_t factor[4];
    weights.numbers<T>(held, shared, group, values, factor);
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      const uint2 pairs =
          input_pairs(product, eight * kRows + lane / 4, first + group * kGroup + lane % 4 * 4);
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

template <int kEights>
struct Shared {
  static constexpr int kSums = kEights * kRows * kColumns;
  alignas(16) std::uint8_t codes[kWarps][kColumns * kPitch];
  float sums[2][kWarps][kSums];
  float values[16];
};

// The sum of the output that is the thread's, over all slices.
template <class T, int kEights>
__device__ __forceinline__ float sum_slices(const Product& product, const Weights& weights,
                                            Shared<kEights>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  const std::int64_t slices = (product.k + kSlice - 1) / kSlice;
  float total = 0;
  Held next;
  if (warp < slices) weights.load(warp, next);
#pragma unroll 1
  for (std::int64_t first = 0, round = 0; first < slices; first += kWarps, ++round) {
    auto& kept = shared.sums[round % 2];
    if (first + warp < slices) {
      const Held held = next;
      weights.share(held, shared.codes[warp]);
      if (first + warp + kWarps < slices) weights.load(first + warp + kWarps, next);
      Sums<kEights> sums = {};
      multiply_slice<T, kEights>(product, weights, held, shared.codes[warp], shared.values,
                                 first + warp, sums);
      keep_sums<kEights>(sums, kept[warp]);
    }
    // The sums of the round before last, which these replace, were read before the last barrier.
    __syncthreads();
    if (threadIdx.x < Shared<kEights>::kSums)
      for (int i = 0; i < kWarps && first + i < slices; ++i) total = total + kept[i][threadIdx.x];
  }
  return total;
}

template <class T, int kEights>
__global__ void __launch_bounds__(kThreads, 3)
    stream_slices(const __grid_constant__ lanes::Args args) {
  __shared__ Shared<kEights> shared;
  const Product& product = args.product;
  const std::int64_t column = std::int64_t{blockIdx.x} * kColumns;
  if (threadIdx.x < 16) shared.values[threadIdx.x] = lanes::value_of(args, threadIdx.x);
  __syncthreads();
  const float sum = sum_slices<T, kEights>(product, Weights(args, column), shared);
  const std::int64_t row = threadIdx.x / kColumns, own = column + threadIdx.x % kColumns;
  if (threadIdx.x < Shared<kEights>::kSums && row < product.m && own < product.n)
    finish_output(OutputPlace(product, row * product.n + own), sum);
}

// Whether warps read whole vectors of codes and inputs, for a few rows, under statistics that runs
// of terms share.
inline bool takes(const Product& product) {
  const WeightCodes& codes = *product.weight.codes;
  const Factor& input = product.input;
  return product.m <= kMostRows && product.k % kRun == 0 && input.row_stride % 4 == 0 &&
         input.term_stride == 1 && cuda::aligned_to(input.data, 8) &&
         codes.segment_size % kRun == 0 && product.batch.rank == 0 && lanes::has_vectors(codes);
}

template <class T, class Visit>
Status visit_rows(std::int64_t rows, const Visit& visit) {
  return rows <= kRows ? visit(stream_slices<T, 1>) : visit(stream_slices<T, 2>);
}
template <class Visit>
Status visit_kernel(DType values, std::int64_t rows, const Visit& visit) {
  return values == DType::Float16 ? visit_rows<math::Half>(rows, visit)
                                  : visit_rows<math::Bfloat16>(rows, visit);
}

inline Status preload(DType values) {
  for (const int rows : {kRows, kMostRows})
    PLANQ_TRY(visit_kernel(values, rows, [](auto kernel) { return cuda::preload(kernel); }));
  return Status::success();
}
inline Status launch(const Product& product, Bound& bound) {
  const lanes::Args args = lanes::args_of(product, kColumns);
  const cuda::Grid grid{.blocks = args.across, .threads = dim3(kThreads)};
  return visit_kernel(args.codes.values, product.m,
                      [&](auto kernel) { return cuda::launch(kernel, grid, args, bound); });
}

}  // namespace planq::linear::slices
