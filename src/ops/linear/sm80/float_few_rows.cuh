// Accumulation::TensorSm90 for few rows of input, on mma.sync: for operands on sm_90 that TMA
// cannot read, since their rows are not aligned to 16 bytes.
//
// A block computes 16 columns of the output, for all rows. Its warps take slices of 128 terms in
// turn; each slice is a chain of mma.sync from +0. After each round of slices, threads add the
// slices to the totals in their order.
#pragma once

#include "cuda/mma.cuh"
#include "ops/linear/simt/gemm.cuh"

namespace planq::linear::float_few_rows {

inline constexpr int kWarps = 8, kThreads = kWarps * cuda::kWarp;
inline constexpr int kColumns = 16;  // of the output: rows of mma.sync's operand a, the weight
inline constexpr int kRows = 8;      // of the input: rows of mma.sync's operand b
inline constexpr int kMostRows = 2 * kRows;
inline constexpr int kBlocks = 2;  // on a multiprocessor
inline constexpr int kGroup = 16;  // terms of a step
inline constexpr int kSlice = math::kTensorCoreSlice, kGroups = kSlice / kGroup;

// Loads the lane's four neighbouring terms of a group, as two pairs of 16-bit numbers. mma.sync
// wants the pairs from two other places in the group. But both operands have the same terms here,
// and the order within a step changes no bit.
__device__ __forceinline__ uint2 four_terms(const GemmOperand& operand, std::int64_t row,
                                            std::int64_t group) {
  const std::int64_t term = group + static_cast<int>(threadIdx.x) % 4 * 4;
  return *reinterpret_cast<const uint2*>(reinterpret_cast<const std::uint16_t*>(operand.data) +
                                         row * operand.row_stride + term);
}

struct Args {
  Gemm gemm;
  std::int32_t across;  // blocks along the columns
};

// The lane's part of a slice of the weight: of each group four terms, of columns lane / 4 and lane
// / 4 + 8.
struct Loaded {
  uint2 pairs[kGroups][2];
};
// `first`: the first of the 16 columns.
__device__ __forceinline__ void load(const Gemm& gemm, std::int64_t first, std::int64_t slice,
                                     Loaded& held) {
  const std::int64_t own = first + static_cast<int>(threadIdx.x) % cuda::kWarp / 4;
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t term = slice * kSlice + group * kGroup;
      const std::int64_t column = min(own + 8 * i, gemm.n - 1);
      if (term < gemm.k) held.pairs[group][i] = four_terms(gemm.weight, column, term);
    }
}

// The lane's part of a group of the input: four terms of row lane / 4 of eight rows.
__device__ __forceinline__ uint2 input_pairs(const Gemm& gemm, std::int64_t row,
                                             std::int64_t group) {
  return row < gemm.m ? four_terms(gemm.input, row, group) : make_uint2(0, 0);
}

// A lane's sums of a slice: 16 columns by kEights times eight rows.
template <int kEights>
using Sums = float[kEights][4];

template <class T, int kEights>
__device__ __forceinline__ void multiply_slice(const Gemm& gemm, const Loaded& held,
                                               std::int64_t slice, Sums<kEights>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const std::int64_t first = slice * kSlice;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (first + group * kGroup >= gemm.k) break;
    const auto& own = held.pairs[group];
    const std::uint32_t operand[4] = {own[0].x, own[1].x, own[0].y, own[1].y};
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      const uint2 pairs = input_pairs(gemm, eight * kRows + lane / 4, first + group * kGroup);
      cuda::multiply_add_floats<T>(sums[eight], operand, pairs.x, pairs.y);
    }
  }
}

// Stores a slice's sums in shared memory, by row and column.
template <int kEights>
__device__ __forceinline__ void store_sums(const Sums<kEights>& sums, float* to) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll
  for (int eight = 0; eight < kEights; ++eight)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[(eight * kRows + lane % 4 * 2 + i % 2) * kColumns + lane / 4 + i / 2 * 8] = sums[eight][i];
}

template <int kEights>
inline constexpr int kSums = kEights * kRows * kColumns;
template <int kEights>
using Kept = float[2][kWarps][kSums<kEights>];

// The total of the thread's output, over all slices.
template <class T, int kEights>
__device__ __forceinline__ float sum_slices(const Gemm& gemm, std::int64_t column,
                                            Kept<kEights>& kept_sums) {
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  const std::int64_t slices = (gemm.k + kSlice - 1) / kSlice;
  float total = 0;
  Loaded next;
  if (warp < slices) load(gemm, column, warp, next);
#pragma unroll 1
  for (std::int64_t first = 0, round = 0; first < slices; first += kWarps, ++round) {
    auto& kept = kept_sums[round % 2];
    if (first + warp < slices) {
      const Loaded held = next;
      if (first + warp + kWarps < slices) load(gemm, column, first + warp + kWarps, next);
      Sums<kEights> sums = {};
      multiply_slice<T, kEights>(gemm, held, first + warp, sums);
      store_sums<kEights>(sums, kept[warp]);
    }
    // The sums overwrite those of the round before last. These were read before the last barrier.
    __syncthreads();
    if (threadIdx.x < kSums<kEights>)
      for (int i = 0; i < kWarps && first + i < slices; ++i) total = total + kept[i][threadIdx.x];
  }
  return total;
}

template <class T, int kEights>
__global__ void __launch_bounds__(kThreads, kBlocks)
    multiply_few_rows(const __grid_constant__ Args args) {
  __shared__ Kept<kEights> kept;
  const Gemm gemm = args.gemm.at(blockIdx.x / args.across);
  const std::int64_t column = std::int64_t{blockIdx.x % args.across} * kColumns;
  const float sum = sum_slices<T, kEights>(gemm, column, kept);
  const std::int64_t row = threadIdx.x / kColumns, own = column + threadIdx.x % kColumns;
  if (threadIdx.x < kSums<kEights> && row < gemm.m && own < gemm.n)
    finish_output(OutputPlace(gemm, row * gemm.n + own), sum);
}

// Whether the kernels take a gemm: few rows, of which lanes can read four terms at once.
inline bool takes(const Gemm& gemm) {
  return gemm.m <= kMostRows && gemm.k % kGroup == 0 && has_fours(gemm, gemm.input, kMovedInput) &&
         has_fours(gemm, gemm.weight, kMovedWeight);
}

template <class T, class Visit>
Status visit_rows(std::int64_t rows, const Visit& visit) {
  return rows <= kRows ? visit(multiply_few_rows<T, 1>) : visit(multiply_few_rows<T, 2>);
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
inline Status launch(const Gemm& gemm, Bound& bound) {
  const Args args{gemm, static_cast<std::int32_t>(cuda::ceil_div(gemm.n, kColumns))};
  const cuda::Grid grid{.blocks = args.across * gemm.batch.size(), .threads = dim3(kThreads)};
  return visit_kernel(gemm.weight.dtype, gemm.m,
                      [&](auto kernel) { return cuda::launch(kernel, grid, args, bound); });
}

}  // namespace planq::linear::float_few_rows
