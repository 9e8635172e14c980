// Accumulation::Lanes where rows of input are few and weights are 4-bit codes: the time is that of
// reading these. A warp computes some columns for all rows; a lane reads the codes of its next
// terms, 16 bytes, while it multiplies those before, and the block shares the input as float32.
#pragma once

#include <algorithm>

#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "math/tensor_core.h"
#include "ops/linear/code_pairs.cuh"
#include "ops/linear/float_product.cuh"

namespace planq::linear {

namespace lanes {

inline constexpr int kWarps = 8, kThreads = kWarps * math::kSumLanes;
inline constexpr int kColumns = 4;  // that a warp computes
inline constexpr int kThreadColumns = kWarps * kColumns;
inline constexpr int kMostRows = 4;
inline constexpr int kTerms = math::kLaneTerms;          // of a lane, at a time
inline constexpr int kChunk = math::kSumLanes * kTerms;  // of all lanes
inline constexpr int kPitch = math::kSumLanes + 1;       // so that no two lanes meet in a bank
inline constexpr int kWords = kTerms / 8;                // of codes

struct Args : CodesArgs {
  Product product;
  cuda::Divider runs;   // of kTerms, in a segment
  std::int32_t across;  // blocks of threads along the columns
};

// What the codes of a lane's terms have in common.
struct Statistic {
  float scale = 1;
  std::int32_t zero_point = 0;

  // Differences with codes are exact in float32.
  __device__ __forceinline__ bool is_near() const {
    constexpr std::int32_t kExact = 1 << 23;
    return zero_point <= kExact && zero_point >= -kExact;
  }
};

// Some columns of a weight, for one lane.
class Columns {
 public:
  __device__ __forceinline__ Columns(const Args& args, std::int64_t first)
      : args_(args), first_(first) {}

  // Those beyond the weight are its last.
  __device__ __forceinline__ std::int64_t column(int i) const {
    return min(first_ + i, args_.codes.rows - 1);
  }
  __device__ __forceinline__ uint4 load(int i, std::int64_t term) const {
    return cuda::load_once(args_.codes.data + (column(i) * args_.codes.row_stride + term) / 2);
  }
  __device__ __forceinline__ Statistic statistic(int i, std::int64_t term) const {
    const WeightCodes& codes = args_.codes;
    if (codes.has_blocks()) {
      const auto run = static_cast<std::uint32_t>((column(i) * codes.terms + term) / kTerms);
      return {codes.statistics.at<float>(args_.runs.quotient(run)), 0};
    }
    if (!codes.scale) return {};
    const std::int64_t group = args_.runs.quotient(static_cast<std::uint32_t>(term / kTerms));
    Statistic own{codes.scale[column(i) * codes.scale_row + group], 0};
    if (codes.zero_point)
      own.zero_point = codes.zero_point[column(i) * codes.zero_point_row + group];
    return own;
  }

 private:
  const Args& args_;
  std::int64_t first_;
};

// The number before it is rounded; `values`: value_of() each code.
__device__ __forceinline__ float number(const Args& args, unsigned code, const Statistic& own,
                                        const float* values) {
  if (own.is_near()) return (values[code] - static_cast<float>(own.zero_point)) * own.scale;
  return math::dequantized<float>(integer_of(args.codes.dtype, static_cast<std::uint8_t>(code)),
                                  own.scale, own.zero_point);
}

// The sums of a warp: columns by rows.
template <int kRows>
using Sums = float[kColumns][kRows];

// Two numbers rounded to T, in float32.
template <class T>
__device__ __forceinline__ void round_pair(float (&pair)[2]) {
  if constexpr (!std::is_same_v<T, float>) {
    const std::uint32_t both = cuda::pair_of(pair[0], pair[1], T{});
    pair[0] = math::widen(T{static_cast<std::uint16_t>(both)});
    pair[1] = math::widen(T{static_cast<std::uint16_t>(both >> 16)});
  }
}

// A pair of a lane's terms onto its sums of a column; `inputs` has the first of the lane's.
template <class T, int kRows>
__device__ __forceinline__ void add_pair(float (&numbers)[2], int term, const float* inputs,
                                         float (&sums)[kRows]) {
  round_pair<T>(numbers);
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int row = 0; row < kRows; ++row)
      sums[row] = math::fused(inputs[(row * kTerms + term + j) * kPitch], numbers[j], sums[row]);
}

// The same as add_terms where float32 cannot subtract the zero point: no such weight is in use.
template <class T, int kRows>
__device__ void add_far_terms(const Args& args, uint4 codes, int first, const Statistic& own,
                              const float* values, const float* inputs, float (&sums)[kRows]) {
#pragma unroll 1
  for (int i = 0; i < kTerms; i += 2) {
    float numbers[2] = {number(args, codes.x >> first & 15, own, values),
                        number(args, codes.x >> (4 - first) & 15, own, values)};
    add_pair<T>(numbers, i, inputs, sums);
    codes.x = codes.x >> 8 | codes.y << 24;
    codes.y = codes.y >> 8 | codes.z << 24;
    codes.z = codes.z >> 8 | codes.w << 24;
    codes.w >>= 8;
  }
}

// A lane's next terms of a column.
template <class T, int kRows>
__device__ __forceinline__ void add_terms(const Args& args, const uint4& codes,
                                          const Statistic& own, const float* values,
                                          const float* inputs, float (&sums)[kRows]) {
  const std::uint32_t words[kWords] = {codes.x, codes.y, codes.z, codes.w};
  const int first = args.codes.nibble_order == NibbleOrder::HighFirst ? 4 : 0;
  const auto shift = static_cast<float>(own.zero_point);
  if (!own.is_near()) return add_far_terms<T>(args, codes, first, own, values, inputs, sums);
#pragma unroll
  for (int i = 0; i < kTerms; i += 2) {
    const std::uint32_t byte = words[i / 8] >> i % 8 * 4;
    float numbers[2] = {(values[byte >> first & 15] - shift) * own.scale,
                        (values[byte >> (4 - first) & 15] - shift) * own.scale};
    add_pair<T>(numbers, i, inputs, sums);
  }
}

// A chunk of the input's rows as float32: what lane l needs i-th is at i * kPitch + l. Rows and
// terms beyond the input are 0; no lane adds the latter.
template <int kRows>
__device__ __forceinline__ void share_inputs(const Product& product, std::int64_t first,
                                             float* inputs) {
  const Factor& factor = product.input;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunk; i += kThreads) {
    const int row = i / kChunk, term = i % kChunk;
    float value = 0;
    if (row < product.m && first + term < product.k)
      value = math::load_scale<float>(
          factor.data, row * factor.row_stride + (first + term) * factor.term_stride, factor.dtype);
    inputs[(row * kTerms + term % kTerms) * kPitch + term / kTerms] = value;
  }
}

template <class T, int kRows>
__device__ __forceinline__ void sum_lanes(const Args& args, const Product& product,
                                          const Columns& columns, const float* values,
                                          float (&inputs)[2][kRows * kTerms * kPitch],
                                          Sums<kRows>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % math::kSumLanes;
  const std::int64_t mine = std::int64_t{lane} * kTerms;
  uint4 codes[kColumns] = {};
  const auto load = [&](std::int64_t chunk) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      if (chunk + mine < product.k) codes[c] = columns.load(c, chunk + mine);
  };
  load(0);
  share_inputs<kRows>(product, 0, inputs[0]);
  int held = 0;
#pragma unroll 1
  for (std::int64_t chunk = 0; chunk < product.k; chunk += kChunk, held ^= 1) {
    // Where the next chunk of inputs goes, every warp has read the one before this.
    __syncthreads();
    uint4 now[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) now[c] = codes[c];
    load(chunk + kChunk);
    if (chunk + kChunk < product.k) share_inputs<kRows>(product, chunk + kChunk, inputs[held ^ 1]);
    if (chunk + mine >= product.k) continue;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      add_terms<T>(args, now[c], columns.statistic(c, chunk + mine), values, inputs[held] + lane,
                   sums[c]);
  }
}

// The lanes' sums as a tree; every lane gets the result of lane 0.
__device__ __forceinline__ float added_up(float sum) {
#pragma unroll
  for (int half = math::kSumLanes / 2; half > 0; half /= 2)
    sum = sum + __shfl_down_sync(cuda::kAllLanes, sum, half);
  return __shfl_sync(cuda::kAllLanes, sum, 0);
}

// `finish(row, column, sum)` by one lane for each output.
template <int kRows, class Finish>
__device__ __forceinline__ void finish_sums(const Sums<kRows>& sums, std::int64_t rows,
                                            std::int64_t first, std::int64_t columns,
                                            const Finish& finish) {
  const int lane = static_cast<int>(threadIdx.x) % math::kSumLanes;
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const float sum = added_up(sums[c][row]);
      if (lane == c * kRows + row && row < rows && first + c < columns) finish(row, first + c, sum);
    }
}

// A block computes kThreadColumns columns of a product of the batch.
template <class T, int kRows>
__global__ void __launch_bounds__(kThreads, kRows == 1 ? 3 : 2)
    stream_codes(const __grid_constant__ Args args) {
  __shared__ float inputs[2][kRows * kTerms * kPitch];
  __shared__ float values[16];
  const Product product = args.product.at(blockIdx.x / args.across);
  if (threadIdx.x < 16) values[threadIdx.x] = value_of(args, threadIdx.x);
  const std::int64_t first = std::int64_t{blockIdx.x % args.across} * kThreadColumns +
                             threadIdx.x / math::kSumLanes * kColumns;
  Sums<kRows> sums = {};
  sum_lanes<T, kRows>(args, product, Columns(args, first), values, inputs, sums);
  finish_sums<kRows>(sums, product.m, first, product.n,
                     [&](std::int64_t row, std::int64_t column, float sum) {
                       finish_output(OutputPlace(product, row * product.n + column), sum);
                     });
}

// And of one segment each, for a row or a few.
inline bool takes(const Product& product) {
  const WeightCodes& codes = *product.weight.codes;
  return product.m <= kMostRows && product.k % kTerms == 0 && codes.segment_size % kTerms == 0 &&
         has_code_vectors(codes);
}

// `columns`: of a block of threads. Weights may be numbers, which have no codes.
inline Args args_of(const Product& product, int columns) {
  const WeightCodes* codes = product.weight.codes;
  Args args{codes ? CodesArgs(*codes) : CodesArgs(), product, {}, 0};
  const std::int64_t segment = std::max<std::int64_t>(args.codes.segment_size, kTerms);
  args.runs = cuda::Divider(
      static_cast<std::uint32_t>(std::min<std::int64_t>(segment / kTerms, cuda::kMaxIndex)));
  args.across = static_cast<std::int32_t>(cuda::ceil_div(product.n, columns));
  return args;
}

// Calls visit(kernel) with that of these numbers and as many rows.
template <class T, class Visit>
Status visit_rows(std::int64_t rows, const Visit& visit) {
  if (rows <= 1) return visit(stream_codes<T, 1>);
  return rows == 2 ? visit(stream_codes<T, 2>) : visit(stream_codes<T, kMostRows>);
}
template <class Visit>
Status visit_kernel(DType values, std::int64_t rows, const Visit& visit) {
  switch (values) {
    case DType::Float16:
      return visit_rows<math::Half>(rows, visit);
    case DType::BFloat16:
      return visit_rows<math::Bfloat16>(rows, visit);
    default:
      return visit_rows<float>(rows, visit);
  }
}

inline Status preload(DType values) {
  for (const int rows : {1, 2, kMostRows})
    PLANQ_TRY(visit_kernel(values, rows, [](auto kernel) { return cuda::preload(kernel); }));
  return Status::success();
}
inline Status launch(const Product& product, Bound& bound) {
  const Args args = args_of(product, kThreadColumns);
  const cuda::Grid grid{.blocks = args.across * product.batch.size(), .threads = dim3(kThreads)};
  return visit_kernel(args.codes.values, product.m,
                      [&](auto kernel) { return cuda::launch(kernel, grid, args, bound); });
}

}  // namespace lanes
}  // namespace planq::linear
