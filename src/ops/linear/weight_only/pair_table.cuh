// A table in shared memory that dequantizes two 4-bit codes at once: one look-up by the byte that
// holds them. It has so many copies that two lanes of a half warp never meet in a bank.
#pragma once

#include <algorithm>

#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"
#include "ops/linear/weight_only/codes.h"

namespace planq::linear {

// The codes of a weight, with the values of its codebook if that is a table of the library: kernels
// get it as an argument.
struct CodesArgs {
  WeightCodes codes;
  float values[16] = {};

  explicit CodesArgs(const WeightCodes& given) : codes(given) {
    if (codes.has_codebook() && !codes.codebook_is_operand) std::copy_n(codes.codebook, 16, values);
  }
  __device__ const float* codebook() const {
    return codes.codebook_is_operand ? codes.codebook : values;
  }
};

// The number that a code stands for, before it is multiplied by its statistic: a value of the
// codebook, or the integer.
__device__ __forceinline__ float value_of(const CodesArgs& args, unsigned code) {
  return number_of(args.codes, args.codebook(), static_cast<std::uint8_t>(code), 0);
}

// For each byte, the two numbers of its codes in the order of their terms, with a copy for each
// lane of a half warp: shared memory serves 8-byte loads of half a warp at a time. The table is
// aligned to its size, so that one instruction makes an address from a byte.
class PairTable {
 public:
  static constexpr std::uint32_t kTableBytes = 32768;

  __device__ __forceinline__ explicit PairTable(cuda::SharedAddress table)
      : own_(table | threadIdx.x % kCopies * static_cast<std::uint32_t>(sizeof(float2))) {
    cuda::keep(own_);
  }

  // Called by all threads of the block, before a barrier.
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

  // Looks up byte kByte of the word.
  template <int kByte>
  __device__ __forceinline__ float2 at(std::uint32_t word) const {
    constexpr int kRight = 8 * kByte - kShift;
    const std::uint32_t moved = kRight < 0 ? word << -kRight : word >> kRight;
    return cuda::load_shared_pair((moved & 0xFFu << kShift) | own_);
  }

 private:
  static constexpr int kBytes = 256, kCopies = cuda::kWarp / 2;
  static constexpr int kShift = 7;  // log2 of the bytes of an entry with all its copies
  static_assert(kCopies * sizeof(float2) == 1 << kShift);
  static_assert(kBytes << kShift == kTableBytes);

  cuda::SharedAddress own_;
};

// What dequantizes the codes of a segment. The zero point is the sum of two floats: `nearest` is
// the float32 nearest to it, `rest` is what that lacks.
struct CodeScale {
  float scale = 1;
  float nearest = 0, rest = 0;

  __device__ __forceinline__ void shift_by(std::int32_t zero_point) {
    nearest = static_cast<float>(zero_point);
    rest = static_cast<float>(zero_point - static_cast<std::int64_t>(nearest));
  }
  // Subtracts the rest first. A code less the rest is a small integer, which is exact, so the
  // difference is rounded once.
  template <bool kShifted>
  __device__ __forceinline__ float2 numbers(float2 pair) const {
    if constexpr (kShifted) pair = {pair.x - rest - nearest, pair.y - rest - nearest};
    return {pair.x * scale, pair.y * scale};
  }
};

// Whether every run of 32 codes is an aligned vector, and 32 bits can number these runs.
inline bool has_code_vectors(const WeightCodes& codes) {
  constexpr int kTerms = 2 * cuda::kVectorBytes;
  const double runs = static_cast<double>(codes.rows) * static_cast<double>(codes.terms) / kTerms;
  return is_four_bit(codes.dtype) && codes.layout == WeightLayout::RowMajor &&
         codes.row_stride % kTerms == 0 && cuda::aligned_to(codes.data, cuda::kVectorBytes) &&
         runs <= static_cast<double>(cuda::kMaxIndex);
}

}  // namespace planq::linear
