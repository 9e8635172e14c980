// What two 4-bit codes in a byte stand for, from a table in shared memory that no two lanes of a
// half warp read in one bank: one look-up for two numbers, whatever the codes.
#pragma once

#include <algorithm>

#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"
#include "ops/linear/weight_only/codes.h"

namespace planq::linear {

// Codes with the values of a codebook that is the library's: kernels have no table of it.
struct CodesArgs {
  WeightCodes codes;
  float values[16] = {};

  CodesArgs() = default;
  explicit CodesArgs(const WeightCodes& given) : codes(given) {
    if (codes.has_blocks() && !codes.codebook_is_operand) std::copy_n(codes.codebook, 16, values);
  }
  __device__ const float* codebook() const {
    return codes.codebook_is_operand ? codes.codebook : values;
  }
};

// What a code stands for before its statistic: a codebook's value, or the integer.
__device__ __forceinline__ float value_of(const CodesArgs& args, unsigned code) {
  if (args.codes.has_blocks()) return args.codebook()[code];
  return static_cast<float>(integer_of(args.codes.dtype, static_cast<std::uint8_t>(code)));
}

// By byte: the values of its codes in the order of their terms, a copy for each lane of a half
// warp, which is what shared memory serves at a time. The table lies at a multiple of its size, so
// that one instruction makes a look-up's address.
class PairTable {
 public:
  static constexpr std::uint32_t kTableBytes = 32768;

  __device__ __forceinline__ explicit PairTable(cuda::SharedAddress table)
      : own_(table | threadIdx.x % kCopies * static_cast<std::uint32_t>(sizeof(float2))) {
    cuda::keep(own_);
  }

  // By all threads of the block, which wait afterwards.
  static __device__ __forceinline__ void fill(float2* table, const CodesArgs& args, int threads) {
    const int first = args.codes.nibble_order == NibbleOrder::HighFirst ? 4 : 0;
    const float own = value_of(args, threadIdx.x % 16);
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kBytes * kCopies; i += threads) {
      const int byte = i / kCopies;
      table[i] = {__shfl_sync(cuda::kAllLanes, own, byte >> first & 15),
                  __shfl_sync(cuda::kAllLanes, own, byte >> (4 - first) & 15)};
    }
  }

  // Of byte `kByte` of the word.
  template <int kByte>
  __device__ __forceinline__ float2 at(std::uint32_t word) const {
    constexpr int kRight = 8 * kByte - kShift;
    const std::uint32_t moved = kRight < 0 ? word << -kRight : word >> kRight;
    return cuda::load_shared_pair((moved & 0xFFu << kShift) | own_);
  }

 private:
  static constexpr int kBytes = 256, kCopies = cuda::kWarp / 2;
  static constexpr int kShift = 7;  // from a byte's copies to the next's
  static_assert(kCopies * sizeof(float2) == 1 << kShift);
  static_assert(kBytes << kShift == kTableBytes);

  cuda::SharedAddress own_;
};

// What gives codes of a segment back. A zero point is the sum of two floats: what is nearest to it,
// and the rest.
struct CodeScale {
  float scale = 1;
  float nearest = 0, rest = 0;

  __device__ __forceinline__ void shift_by(std::int32_t zero_point) {
    nearest = static_cast<float>(zero_point);
    rest = static_cast<float>(zero_point - static_cast<std::int64_t>(nearest));
  }
  // A code less the rest is a small integer, so that the difference is rounded once.
  template <bool kShifted>
  __device__ __forceinline__ float2 numbers(float2 pair) const {
    if constexpr (kShifted) pair = {pair.x - rest - nearest, pair.y - rest - nearest};
    return {pair.x * scale, pair.y * scale};
  }
};

// Whether runs of 32 codes, whose numbers fit 32 bits, are vectors.
inline bool has_code_vectors(const WeightCodes& codes) {
  constexpr int kTerms = 2 * cuda::kVectorBytes;
  const double runs = static_cast<double>(codes.rows) * static_cast<double>(codes.terms) / kTerms;
  return is_four_bit(codes.dtype) && codes.layout == WeightLayout::RowMajor &&
         codes.row_stride % kTerms == 0 && cuda::aligned_to(codes.data, cuda::kVectorBytes) &&
         runs <= static_cast<double>(cuda::kMaxIndex);
}

}  // namespace planq::linear
