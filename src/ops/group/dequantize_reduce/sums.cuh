// Sums over ranks on CUDA: a thread adds vectors of 16 codes, rank by rank, in registers. What lies
// otherwise is added element by element.
#pragma once

#include "ops/group/group.cuh"

namespace planq::cuda {

inline constexpr int kSummed = 16;  // codes of a vector

// Sixteen codes of a rank.
template <bool kNibble>
struct SummedWords {
  std::uint32_t word[kNibble ? 2 : 4];

  __device__ __forceinline__ void load(const std::uint8_t* from) {
    if constexpr (kNibble) {
      const auto pair = load_single(reinterpret_cast<const std::uint64_t*>(from));
      word[0] = static_cast<std::uint32_t>(pair);
      word[1] = static_cast<std::uint32_t>(pair >> 32);
    } else {
      const uint4 vector = load_once(from);
      memcpy(word, &vector, sizeof word);
    }
  }
  __device__ __forceinline__ float number(math::GroupForm form, int j) const {
    constexpr int kPerWord = kNibble ? 8 : 4;
    return code_number<kNibble>(form, word[j / kPerWord] >> code_shift<kNibble>(j % kPerWord));
  }
};

template <bool kHalf, bool kNibble>
__device__ __forceinline__ void add_ranks(const RankedCodes& ranked, std::int64_t first,
                                          float (&sums)[kSummed]) {
  const std::int64_t group = first / ranked.size, byte = kNibble ? first / 2 : first;
#pragma unroll 4
  for (int rank = 0; rank < ranked.ranks; ++rank) {
    SummedWords<kNibble> words;
    words.load(ranked.codes + rank * ranked.rank_bytes + byte);
    const math::GroupPair stored = ranked.load(rank, group);
#pragma unroll
    for (int j = 0; j < kSummed; ++j)
      sums[j] = math::accumulated<kHalf>(
          sums[j], math::group_value<float>(ranked.form, stored, words.number(ranked.form, j)));
  }
  if (!ranked.mean) return;
#pragma unroll
  for (int j = 0; j < kSummed; ++j)
    sums[j] = math::mean_of<kHalf>(sums[j], static_cast<float>(ranked.ranks));
}

// The sums of a vector, whose codes lie in one group and where vectors may.
template <bool kNibble>
__device__ __forceinline__ void sum_vector(const RankedCodes& ranked, bool half, std::int64_t first,
                                           float (&sums)[kSummed]) {
#pragma unroll
  for (int j = 0; j < kSummed; ++j) sums[j] = 0.0f;
  if (half)
    add_ranks<true, kNibble>(ranked, first, sums);
  else
    add_ranks<false, kNibble>(ranked, first, sums);
}

template <bool kHalf, bool kNibble>
__device__ __forceinline__ float sum_as(const RankedCodes& ranked, std::int64_t element) {
  float sum = 0.0f;
  for (int rank = 0; rank < ranked.ranks; ++rank) {
    const std::uint8_t* codes = ranked.codes + rank * ranked.rank_bytes;
    const std::uint8_t byte = codes[kNibble ? element / 2 : element];
    const std::uint32_t bits = kNibble && element % 2 == 0 ? byte >> 4 : byte;
    const math::GroupPair stored = ranked.load(rank, element / ranked.size);
    sum = math::accumulated<kHalf>(
        sum,
        math::group_value<float>(ranked.form, stored, code_number<kNibble>(ranked.form, bits)));
  }
  return ranked.mean ? math::mean_of<kHalf>(sum, static_cast<float>(ranked.ranks)) : sum;
}
template <bool kNibble>
__device__ __forceinline__ float sum_element(const RankedCodes& ranked, bool half,
                                             std::int64_t element) {
  return half ? sum_as<true, kNibble>(ranked, element) : sum_as<false, kNibble>(ranked, element);
}

// Whether vectors of codes begin where they may, in every rank, and lie in one group each.
template <bool kNibble>
bool sums_vectors(const RankedCodes& ranked, std::int64_t elements) {
  constexpr int kBytes = kNibble ? 8 : 16;
  return elements % kSummed == 0 && (ranked.size % kSummed == 0 || ranked.size >= elements) &&
         elements / kSummed < (std::int64_t{1} << 31) &&
         (ranked.ranks == 1 || ranked.rank_bytes % kBytes == 0) && aligned_to(ranked.codes, kBytes);
}

}  // namespace planq::cuda
