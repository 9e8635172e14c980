// Accumulation::Lanes for up to kMostRows rows of input and 4-bit weights. Such a gemm takes as
// long as the weight takes to read.
//
// A warp computes kColumns columns of the output, for all rows. Each lane reads the next 32 codes
// of each column, 16 bytes, while it multiplies the 32 before. The block shares two things in
// shared memory: the input as float32, and the table that dequantizes two codes at once.
#pragma once

#include <algorithm>

#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "cuda/pairs.cuh"
#include "math/tensor_core.h"
#include "ops/linear/simt/gemm.cuh"
#include "ops/linear/weight_only/pair_table.cuh"

namespace planq::linear {

namespace lanes {

inline constexpr int kWarps = 8, kThreads = kWarps * math::kSumLanes;
inline constexpr int kColumns = 4;  // of the output, by one warp
inline constexpr int kThreadColumns = kWarps * kColumns;
inline constexpr int kMostRows = 4;
inline constexpr int kTerms = math::kLaneTerms;          // that a lane has of a chunk
inline constexpr int kChunk = math::kSumLanes * kTerms;  // terms of all lanes
inline constexpr int kPitch = math::kSumLanes + 1;  // padded, so that no two lanes read one bank
inline constexpr int kWords = kTerms / 8;           // words of a lane's kTerms codes

struct Args : CodesArgs {
  Gemm gemm;
  cuda::Divider runs;   // runs of kTerms terms in a segment
  std::int32_t across;  // blocks along the columns
};

// The weight of a warp's columns, for one lane.
class Columns {
 public:
  __device__ __forceinline__ Columns(const Args& args, std::int64_t first)
      : args_(args), first_(first) {}

  // Columns beyond the last one are the last one again.
  __device__ __forceinline__ std::int64_t column(int i) const {
    return min(first_ + i, args_.codes.rows - 1);
  }
  __device__ __forceinline__ uint4 load(int i, std::int64_t term) const {
    return cuda::load_once(args_.codes.data + (column(i) * args_.codes.row_stride + term) / 2);
  }
  template <bool kShifted>
  __device__ __forceinline__ CodeScale scale(int i, std::int64_t term) const {
    const WeightCodes& codes = args_.codes;
    CodeScale own;
    if (!codes.scales.exist()) return own;
    const std::int64_t first = codes.has_blocks ? column(i) * codes.terms : 0;
    const std::int64_t segment =
        args_.runs.quotient(static_cast<std::uint32_t>((first + term) / kTerms));
    own.scale = codes.scales.at(scale_index(codes, column(i), segment));
    if constexpr (kShifted) own.shift_by(codes.stored_zero_point(column(i), segment));
    return own;
  }

 private:
  const Args& args_;
  std::int64_t first_;
};

// The sums of a lane, by column and row.
template <int kRows>
using Sums = float[kColumns][kRows];

// Two numbers rounded to T, as float32.
template <class T>
__device__ __forceinline__ float2 rounded_pair(float2 pair) {
  if constexpr (std::is_same_v<T, float>) {
    return pair;
  } else {
    const std::uint32_t both = cuda::pair_of(pair.x, pair.y, T{});
    return {cuda::of_pair<T>(both, 0), cuda::of_pair<T>(both, 1)};
  }
}

// What a lane loads of a chunk: the codes of its kTerms terms in each column, and the scale and
// zero point that dequantize them.
struct Loaded {
  uint4 codes[kColumns];
  CodeScale scales[kColumns];

  __device__ __forceinline__ std::uint32_t word(int column, int i) const {
    const uint4& own = codes[column];
    return i == 0 ? own.x : i == 1 ? own.y : i == 2 ? own.z : own.w;
  }
};

// Multiplies a lane's terms of a chunk and adds them to its sums. `inputs`: the lane's first number
// in the chunk that share_inputs() wrote.
template <class T, int kRows, bool kShifted>
__device__ __forceinline__ void add_terms(const PairTable& pairs, const Loaded& held,
                                          const float* inputs, Sums<kRows>& sums) {
  const auto add_pair = [&]<int kByte>(int word) {
    float first[kRows], second[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const float* own = inputs + (row * kTerms + word * 8 + kByte * 2) * kPitch;
      first[row] = own[0];
      second[row] = own[kPitch];
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float2 pair = pairs.at<kByte>(held.word(c, word));
      const float2 numbers = rounded_pair<T>(held.scales[c].template numbers<kShifted>(pair));
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        sums[c][row] = math::fused(first[row], numbers.x, sums[c][row]);
        sums[c][row] = math::fused(second[row], numbers.y, sums[c][row]);
      }
    }
  };
#pragma unroll
  for (int word = 0; word < kWords; ++word) {
    add_pair.template operator()<0>(word);
    add_pair.template operator()<1>(word);
    add_pair.template operator()<2>(word);
    add_pair.template operator()<3>(word);
  }
}

// Writes a chunk of all input rows to shared memory, as float32. Number i of lane l is at i *
// kPitch + l. Rows and terms beyond the input are 0. No lane adds such terms.
template <int kRows>
__device__ __forceinline__ void share_inputs(const Gemm& gemm, std::int64_t first, float* inputs) {
  const GemmOperand& operand = gemm.input;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunk; i += kThreads) {
    const int row = i / kChunk, term = i % kChunk;
    float value = 0;
    if (row < gemm.m && first + term < gemm.k)
      value = math::load_scale<float>(
          operand.data, row * operand.row_stride + (first + term) * operand.term_stride,
          operand.dtype);
    inputs[(row * kTerms + term % kTerms) * kPitch + term / kTerms] = value;
  }
}

// Sums over all terms, chunk by chunk. `inputs` holds two chunks: while one is multiplied, the next
// is written.
template <class T, int kRows, bool kShifted>
__device__ __forceinline__ void sum_lanes(const Gemm& gemm, const Columns& columns,
                                          const PairTable& pairs, float* inputs,
                                          Sums<kRows>& sums) {
  constexpr int kShared = kRows * kTerms * kPitch;
  const int lane = static_cast<int>(threadIdx.x) % math::kSumLanes;
  const std::int64_t mine = std::int64_t{lane} * kTerms;
  Loaded next = {};
  const auto load = [&](std::int64_t chunk) {
    if (chunk + mine >= gemm.k) return;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      next.codes[c] = columns.load(c, chunk + mine);
      next.scales[c] = columns.scale<kShifted>(c, chunk + mine);
    }
  };
  load(0);
  share_inputs<kRows>(gemm, 0, inputs);
  int held = 0;
#pragma unroll 1
  for (std::int64_t chunk = 0; chunk < gemm.k; chunk += kChunk, held ^= 1) {
    // Every warp has read the chunk that the next one overwrites. At the first barrier the table is
    // complete, too.
    __syncthreads();
    const Loaded now = next;
    load(chunk + kChunk);
    if (chunk + kChunk < gemm.k)
      share_inputs<kRows>(gemm, chunk + kChunk, inputs + (held ^ 1) * kShared);
    if (chunk + mine < gemm.k)
      add_terms<T, kRows, kShifted>(pairs, now, inputs + held * kShared + lane, sums);
  }
}

// Adds up the sums of all lanes as a tree. Every lane gets the result.
__device__ __forceinline__ float added_up(float sum) {
#pragma unroll
  for (int half = math::kSumLanes / 2; half > 0; half /= 2)
    sum = sum + __shfl_down_sync(cuda::kAllLanes, sum, half);
  return __shfl_sync(cuda::kAllLanes, sum, 0);
}

// Calls finish(row, column, sum) for each output of the warp, in one lane.
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

// Shared memory of a block: the table, aligned to its size, and the input. The input lies below the
// table if it fits there, above it if not. The first kilobyte belongs to the system.
template <int kRows>
struct SharedParts {
  static constexpr int kInputBytes = 2 * kRows * kTerms * kPitch * static_cast<int>(sizeof(float));
  static constexpr int kBelowBytes = PairTable::kTableBytes - 1024;
  static constexpr bool kBelow = kInputBytes <= kBelowBytes;
  static constexpr int kBytes = kBelowBytes + PairTable::kTableBytes + (kBelow ? 0 : kInputBytes);
};

// A block computes kThreadColumns columns of one gemm of the batch.
template <class T, int kRows, bool kShifted>
__global__ void __launch_bounds__(kThreads, kRows == 1 && !kShifted ? 3 : 2)
    multiply_few_rows(const __grid_constant__ Args args) {
  using Parts = SharedParts<kRows>;
  std::uint8_t* const shared = reinterpret_cast<std::uint8_t*>(cuda::dynamic_shared());
  const cuda::SharedAddress begin = cuda::shared_address_of(shared);
  const cuda::SharedAddress table =
      (begin + PairTable::kTableBytes - 1) & ~cuda::SharedAddress{PairTable::kTableBytes - 1};
  std::uint8_t* const at_table = shared + (table - begin);
  auto* const inputs =
      reinterpret_cast<float*>(Parts::kBelow ? shared : at_table + PairTable::kTableBytes);
  const Gemm gemm = args.gemm.at(blockIdx.x / args.across);
  PairTable::fill(reinterpret_cast<float2*>(at_table), args, kThreads);
  const std::int64_t first = std::int64_t{blockIdx.x % args.across} * kThreadColumns +
                             threadIdx.x / math::kSumLanes * kColumns;
  Sums<kRows> sums = {};
  sum_lanes<T, kRows, kShifted>(gemm, Columns(args, first), PairTable(table), inputs, sums);
  finish_sums<kRows>(sums, gemm.m, first, gemm.n,
                     [&](std::int64_t row, std::int64_t column, float sum) {
                       finish_output(OutputPlace(gemm, row * gemm.n + column), sum);
                     });
}

// Whether these kernels take a gemm: few rows, and codes that a lane reads as vectors, each within
// one segment.
inline bool takes(const Gemm& gemm) {
  const WeightCodes& codes = *gemm.weight.codes;
  return gemm.m <= kMostRows && gemm.k % kTerms == 0 && codes.segment_size % kTerms == 0 &&
         has_code_vectors(codes);
}

inline Args args_of(const Gemm& gemm) {
  Args args{CodesArgs(*gemm.weight.codes), gemm, {}, 0};
  const std::int64_t segment = std::max<std::int64_t>(args.codes.segment_size, kTerms);
  args.runs = cuda::Divider(
      static_cast<std::uint32_t>(std::min<std::int64_t>(segment / kTerms, cuda::kMaxIndex)));
  args.across = static_cast<std::int32_t>(cuda::ceil_div(gemm.n, kThreadColumns));
  return args;
}

// Calls visit(kernel, its shared memory) for the kernel with numbers of T that takes these rows.
template <class T, bool kShifted, class Visit>
Status visit_rows(std::int64_t rows, const Visit& visit) {
  const auto one = [&]<int kRows>() {
    return visit(multiply_few_rows<T, kRows, kShifted>, SharedParts<kRows>::kBytes);
  };
  if (rows <= 1) return one.template operator()<1>();
  return rows == 2 ? one.template operator()<2>() : one.template operator()<kMostRows>();
}
template <bool kShifted, class Visit>
Status visit_numbers(DType values, std::int64_t rows, const Visit& visit) {
  switch (values) {
    case DType::Float16:
      return visit_rows<math::Half, kShifted>(rows, visit);
    case DType::BFloat16:
      return visit_rows<math::Bfloat16, kShifted>(rows, visit);
    default:
      return visit_rows<float, kShifted>(rows, visit);
  }
}
template <class Visit>
Status visit_kernel(DType values, std::int64_t rows, bool shifted, const Visit& visit) {
  return shifted ? visit_numbers<true>(values, rows, visit)
                 : visit_numbers<false>(values, rows, visit);
}

inline Status preload(DType values) {
  const auto load = [](auto kernel, int bytes) { return cuda::preload(kernel, bytes); };
  for (const bool shifted : {false, true})
    for (const int rows : {1, 2, kMostRows}) PLANQ_TRY(visit_kernel(values, rows, shifted, load));
  return Status::success();
}
inline Status launch(const Gemm& gemm, Bound& bound) {
  const Args args = args_of(gemm);
  cuda::Grid grid{.blocks = args.across * gemm.batch.size(), .threads = dim3(kThreads)};
  return visit_kernel(args.codes.values, gemm.m, args.codes.zero_point != nullptr,
                      [&](auto kernel, int bytes) {
                        grid.shared_bytes = bytes;
                        return cuda::launch(kernel, grid, args, bound);
                      });
}

}  // namespace lanes
}  // namespace planq::linear
