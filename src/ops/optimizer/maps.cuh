// The maps of optimizer states in shared memory: what a code stands for, and which code a quotient
// takes. Compiled-in maps are searched by buckets, a caller's by bisection.
#pragma once

#include "cuda/memory_access.cuh"
#include "ops/codebook/search.cuh"
#include "ops/optimizer/arithmetic.h"
#include "ops/optimizer/coded.h"

namespace planq::optimizer::cuda {

using planq::cuda::kWarp;

// In device memory, to be copied. Of the unsigned map the buckets from 0 on.
inline constexpr int kSignedEntries = 2 * host::kDynamicBuckets.half,
                     kUnsignedEntries = kUnsignedBuckets.half;
__device__ const math::ByteTable kSignedTableMemory = math::kDynamicTable;
__device__ const math::ByteTable kUnsignedTableMemory = math::kUnsignedDynamicTable;
__device__ const host::Buckets kSignedMemory = host::kDynamicBuckets;
__device__ const host::Buckets kUnsignedMemory = kUnsignedBuckets;

constexpr int count_maps(OptimizerAlgorithm algorithm, bool of_signed) {
  int count = 0;
  for (int k = 0; k < count_states(algorithm, true); ++k)
    count += is_signed_state(algorithm, k) == of_signed;
  return count;
}

template <OptimizerAlgorithm kAlgorithm>
class Maps {
 public:
  static constexpr int kStates = count_states(kAlgorithm, true);
  static constexpr bool kHasSigned = count_maps(kAlgorithm, true) > 0,
                        kHasUnsigned = count_maps(kAlgorithm, false) > 0;

  // By all threads of the block, 256 or more, which wait for each other here. `given` has null for
  // a map that is compiled in.
  __device__ __forceinline__ void build(const float* const (&given)[kMostStates]) {
    if constexpr (kHasSigned) copy(signed_entries_, kSignedMemory.entry, kSignedEntries);
    if constexpr (kHasUnsigned)
      copy(unsigned_entries_, kUnsignedMemory.entry + kUnsignedBuckets.half, kUnsignedEntries);
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (threadIdx.x == 0) is_given_[k] = given[k] != nullptr;
      if (given[k]) {
        planq::cuda::build_given(table_[k], planq::cuda::CodebookSource{given[k], 256, {}});
      } else {
        const bool is_signed = is_signed_state(kAlgorithm, k);
        planq::cuda::copy_shared(table_[k], is_signed ? kSignedTableMemory : kUnsignedTableMemory);
      }
    }
    __syncthreads();
  }

  __device__ __forceinline__ float value(int state, std::uint32_t code) const {
    return table_[state].value[code];
  }

  // coded_state() by whichever search there is.
  __device__ __forceinline__ std::uint32_t code(int state, float x,
                                                const math::BlockDivision<float>& block) const {
    const bool is_signed = is_signed_state(kAlgorithm, state);
    if (is_given_[state]) return coded_state(x, block, table_[state], is_signed);
    const auto zero = static_cast<std::uint32_t>(is_signed ? math::kDynamicTable.zero
                                                           : math::kUnsignedDynamicTable.zero);
    if (block.empty) return zero;
    const float y = math::number_of(math::divided(x, block));
    const std::uint32_t rank = is_signed ? signed_rank(y) : unsigned_rank(y);
    return is_signed && x < 0 && rank == zero ? rank - 1 : rank;
  }

 private:
  static __device__ __forceinline__ void copy(std::uint32_t* to, const std::uint32_t* from,
                                              int count) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
      to[i] = __ldg(from + i);
  }

  // host::Buckets, whose numbers are constants here.
  static __device__ __forceinline__ std::int32_t inside(std::int32_t magnitude, std::int32_t lowest,
                                                        std::int32_t highest, std::int32_t base) {
    return min(max(magnitude, lowest), highest) - base;
  }
  __device__ __forceinline__ std::uint32_t signed_rank(float y) const {
    constexpr std::int32_t kLowest = host::kDynamicBuckets.lowest,
                           kHighest = host::kDynamicBuckets.highest,
                           kBase = host::kDynamicBuckets.base, kShift = host::kDynamicBuckets.shift,
                           kHalf = host::kDynamicBuckets.half;
    const std::int32_t bits = __float_as_int(y);
    const std::int32_t place = inside(bits & 0x7FFFFFFF, kLowest, kHighest, kBase) ^ (bits >> 31);
    const std::uint32_t rest = static_cast<std::uint32_t>(place) & ((1u << kShift) - 1);
    return (signed_entries_[kHalf + (place >> kShift)] + rest) >> kShift;
  }
  __device__ __forceinline__ std::uint32_t unsigned_rank(float y) const {
    constexpr std::int32_t kLowest = kUnsignedBuckets.lowest, kHighest = kUnsignedBuckets.highest,
                           kBase = kUnsignedBuckets.base, kShift = kUnsignedBuckets.shift;
    const std::int32_t place = inside(max(__float_as_int(y), 0), kLowest, kHighest, kBase);
    const std::uint32_t rest = static_cast<std::uint32_t>(place) & ((1u << kShift) - 1);
    return (unsigned_entries_[place >> kShift] + rest) >> kShift;
  }

  alignas(16) math::ByteTable table_[kStates];
  std::uint32_t signed_entries_[kHasSigned ? kSignedEntries : 1];
  std::uint32_t unsigned_entries_[kHasUnsigned ? kUnsignedEntries : 1];
  bool is_given_[kStates];
};

}  // namespace planq::optimizer::cuda
