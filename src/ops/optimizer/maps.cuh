// The maps of optimizer states in shared memory: what a code stands for, and which code a quotient
// takes. Compiled-in maps are searched by buckets, a caller's by bisection.
#pragma once

#include "cuda/memory_access.cuh"
#include "ops/affine/affine.cuh"
#include "ops/codebook/search.cuh"
#include "ops/optimizer/arithmetic.h"
#include "ops/optimizer/coded.h"

namespace planq::optimizer::cuda {

using planq::cuda::kWarp;

// ---- searches of compiled-in maps --------------------------------------------------------------

// Quotients are searched for as 2^-kLowered of them, so that those that are tiny, and have no
// thresholds between them, become subnormal and share buckets. The factor is in the reciprocal that
// states are multiplied by, which is exact for absmax in these bounds.
inline constexpr int kLowered = 103;
inline constexpr float kLoweredFactor = 0x1p-103f, kLeastAbsmax = 0x1p-120f, kMostAbsmax = 0x1p23f;

// Bits of a lowered quotient in the order of numbers, as integers with a sign. The upper ones are
// the number of its bucket, which holds one threshold at most. A bucket's entry has the code in its
// upper byte; added to those bits, it carries into the code where they exceed the threshold's.
template <bool kIsSigned>
struct StateSearch {
  static constexpr int kShift = kIsSigned ? 17 : 16;
  static constexpr std::int32_t kWidth = std::int32_t{1} << kShift;
  static constexpr int kHalf = (128 - kLowered) << (23 - kShift);  // buckets of a sign
  static constexpr int kFirst = kIsSigned ? -kHalf : 0, kEntries = kHalf - kFirst;
  alignas(16) std::uint32_t entry[kEntries];
  bool crowded;  // a bucket holds two thresholds, or the lowest one a threshold

  static constexpr const math::ByteTable& table() {
    return kIsSigned ? math::kDynamicTable : math::kUnsignedDynamicTable;
  }
  // As an integer in that order; of what is negative and tiny, the highest below 0.
  static constexpr std::int32_t lowered(float y) {
    const float magnitude = y < 0 ? -y : y;
    if (magnitude == 0) return y < 0 ? -1 : 0;
    const std::int32_t bits = std::bit_cast<std::int32_t>(magnitude) - (kLowered << 23);
    return y < 0 ? -1 - bits : bits;
  }
  // coded_state() has a code less for what is below 0 than the map would give it next to 0.
  static constexpr int ranks_of(std::int32_t number) {
    return kIsSigned && number < 0 ? table().zero : table().ranks;
  }

  constexpr StateSearch() : entry{}, crowded(false) {
    int rank = 0;
    for (std::int32_t number = kFirst; number < kHalf; ++number) {
      const std::int32_t first = number * kWidth, next = first + kWidth;
      const int before = rank < ranks_of(number) ? rank : ranks_of(number) - 1;
      std::uint32_t carries = 0;
      for (; rank < 255 && lowered(table().threshold[rank]) < next; ++rank) {
        const std::int32_t past = lowered(table().threshold[rank]) - first;
        crowded = crowded || carries != 0 || past < 0;
        if (rank + 1 < ranks_of(number)) carries = (1u << 24) - 1 - static_cast<unsigned>(past);
      }
      entry[number - kFirst] =
          (static_cast<std::uint32_t>(before) << 24) + carries - static_cast<std::uint32_t>(first);
    }
  }
  constexpr std::uint32_t code(std::int32_t ordered_bits) const {
    return (entry[(ordered_bits >> kShift) - kFirst] + static_cast<std::uint32_t>(ordered_bits)) >>
           24;
  }
  // Whether every threshold and the number above it find their codes.
  constexpr bool holds() const {
    for (int i = 0; i + 1 < table().ranks; ++i) {
      const std::int32_t at = lowered(table().threshold[i]);
      const bool is_negative = table().threshold[i] < 0;
      const auto expected = [&](int rank) {
        return static_cast<std::uint32_t>(
            kIsSigned && is_negative && rank == table().zero ? rank - 1 : rank);
      };
      if (code(at) != expected(i) || code(at + 1) != expected(i + 1)) return false;
    }
    return !crowded && code(0) == table().zero && (!kIsSigned || code(-1) + 1 == table().zero);
  }
};
static_assert(StateSearch<true>().holds() && StateSearch<false>().holds());

// In device memory, to be copied.
__device__ const StateSearch<true> kSignedSearch;
__device__ const StateSearch<false> kUnsignedSearch;
__device__ const math::ByteTable kSignedTable = math::kDynamicTable;
__device__ const math::ByteTable kUnsignedTable = math::kUnsignedDynamicTable;

// Not inlined: few states need it, and its instructions would lie between those that all do.
inline __device__ __noinline__ std::uint32_t code_aside(float x, float absmax,
                                                        const math::ByteTable& table,
                                                        bool is_signed) {
  return coded_state(x, math::block_division(absmax, Quotient::Reciprocal), table, is_signed);
}

// ---- maps of an algorithm ----------------------------------------------------------------------

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
  // a map that is compiled in, or that map itself.
  __device__ __forceinline__ void build(const float* const (&given)[kMostStates]) {
    if constexpr (kHasSigned) {
      copy(signed_entries_, kSignedSearch.entry);
      spread(0, kSignedTable.value);
    }
    if constexpr (kHasUnsigned) {
      copy(unsigned_entries_, kUnsignedSearch.entry);
      spread(1, kUnsignedTable.value);
    }
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      const bool is_given = differs(given[k], is_signed_state(kAlgorithm, k));
      if (threadIdx.x == 0) is_given_[k] = is_given;
      if (is_given) planq::cuda::build_given(given_[k], {given[k], 256, {}});
    }
    __syncthreads();
  }
  __device__ __forceinline__ bool are_compiled() const {
    bool compiled = true;
#pragma unroll
    for (int k = 0; k < kStates; ++k) compiled = compiled && !is_given_[k];
    return compiled;
  }

  // fl(value * absmax) of four codes a word. kIsCompiled: are_compiled().
  template <bool kIsCompiled, int kCount>
  __device__ __forceinline__ void decode(int state, const std::uint32_t (&words)[kCount / 4],
                                         float absmax, float (&to)[kCount]) const {
    if (!kIsCompiled && is_given_[state]) {
#pragma unroll
      for (int j = 0; j < kCount; ++j)
        to[j] = given_[state].value[words[j / 4] >> 8 * (j % 4) & 255] * absmax;
      return;
    }
    const auto* const values = reinterpret_cast<const char*>(values_);
    const std::uint32_t place = place_of_lane(is_signed_state(kAlgorithm, state) ? 0 : 1);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const std::uint32_t at =
          __byte_perm(words[j / 4], place, 0x5504u | static_cast<unsigned>(j % 4) << 4);
      to[j] = *reinterpret_cast<const float*>(values + at) * absmax;
    }
  }

  // coded_state() of several states of a block, by whichever search there is.
  template <bool kIsCompiled, int kCount>
  __device__ __forceinline__ void encode(int state, const float (&x)[kCount], float absmax,
                                         std::uint32_t (&words)[kCount / 4]) const {
    const bool is_signed = is_signed_state(kAlgorithm, state);
    const bool is_given = !kIsCompiled && is_given_[state];
    const float divisor = absmax == 0 ? 1.0f : absmax;
    if (!is_given && divisor >= kLeastAbsmax && divisor <= kMostAbsmax) {
      const float factor = planq::cuda::inverse_of(divisor) * kLoweredFactor;
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i) {
        std::uint32_t found[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
          found[j] =
              is_signed ? signed_code(x[4 * i + j], factor) : unsigned_code(x[4 * i + j], factor);
        words[i] = __byte_perm(__byte_perm(found[0], found[1], 0x0073),
                               __byte_perm(found[2], found[3], 0x0073), 0x5410);
      }
      return;
    }
    const math::ByteTable& table = is_given    ? given_[state]
                                   : is_signed ? kSignedTable
                                               : kUnsignedTable;
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) words[i] = 0;
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      words[j / 4] |= code_aside(x[j], absmax, table, is_signed) << 8 * (j % 4);
  }

 private:
  static constexpr int kColumns = 2 * kWarp;  // of values: a code's address is its byte's place

  static __device__ __forceinline__ std::uint32_t place_of_lane(int map) {
    return 4 * (static_cast<unsigned>(map) * kWarp + threadIdx.x % kWarp);
  }
  template <int kCount>
  static __device__ __forceinline__ void copy(std::uint32_t (&to)[kCount],
                                              const std::uint32_t (&from)[kCount]) {
    for (unsigned i = threadIdx.x; i < kCount / 4; i += blockDim.x)
      reinterpret_cast<uint4*>(to)[i] = __ldg(reinterpret_cast<const uint4*>(from) + i);
  }
  // Whether a map is given that is not the compiled-in one. The block waits.
  static __device__ __forceinline__ bool differs(const float* given, bool is_signed) {
    const float (&compiled)[256] = is_signed ? kSignedTable.value : kUnsignedTable.value;
    bool found = false;
    for (unsigned i = threadIdx.x; given && i < 256; i += blockDim.x)
      found |= __float_as_uint(__ldg(given + i)) != __float_as_uint(compiled[i]);
    return __syncthreads_or(found);
  }
  // The value of every code to each lane of a warp, so that no two wait for a bank.
  __device__ __forceinline__ void spread(int map, const float (&from)[256]) {
    for (unsigned i = threadIdx.x; i < 256 * kWarp / 4; i += blockDim.x) {
      const float value = __ldg(from + i / (kWarp / 4));
      *reinterpret_cast<float4*>(&values_[i / (kWarp / 4)][map * kWarp + i % (kWarp / 4) * 4]) =
          make_float4(value, value, value, value);
    }
  }

  // The code in the upper byte. Where a state is -0, the sum is +0.
  __device__ __forceinline__ std::uint32_t signed_code(float x, float factor) const {
    const std::int32_t bits = __float_as_int(__fmaf_rn(x, factor, 0.0f));
    const std::int32_t ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF);
    return signed_entries_[(ordered >> StateSearch<true>::kShift) - StateSearch<true>::kFirst] +
           static_cast<std::uint32_t>(ordered);
  }
  __device__ __forceinline__ std::uint32_t unsigned_code(float x, float factor) const {
    const std::uint32_t bits = __float_as_uint(__saturatef(__fmul_rn(x, factor)));
    return unsigned_entries_[bits >> StateSearch<false>::kShift] + bits;
  }

  alignas(16) float values_[256][kColumns];
  alignas(16) std::uint32_t signed_entries_[kHasSigned ? StateSearch<true>::kEntries : 4];
  alignas(16) std::uint32_t unsigned_entries_[kHasUnsigned ? StateSearch<false>::kEntries : 4];
  math::ByteTable given_[kStates];
  bool is_given_[kStates];
};

}  // namespace planq::optimizer::cuda
