// Sums over ranks on CUDA: a thread adds vectors of codes, rank by rank, in registers. What lies
// otherwise is added element by element.
#pragma once

#include "cuda/divider.cuh"
#include "ops/group/group.cuh"

namespace planq::cuda {

inline constexpr int kSummed = 16;  // codes of a vector

// Groups without an offset have the offset 0 here. It makes a product of -0 one of +0, and both are
// the same to a sum that began as +0.
inline constexpr math::GroupForm kSummedForm = math::GroupForm::Asymmetric;

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
  __device__ __forceinline__ float number(int j) const {
    constexpr int kPerWord = kNibble ? 8 : 4;
    return code_number<kNibble>(kSummedForm,
                                word[j / kPerWord] >> code_shift<kNibble>(j % kPerWord));
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
          sums[j], math::group_value<float>(kSummedForm, stored, words.number(j)));
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
        math::group_value<float>(kSummedForm, stored, code_number<kNibble>(kSummedForm, bits)));
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

// --- Several ranks at a time --------------------------------------------------------------------

// Codes in 16 bytes.
template <bool kNibble>
inline constexpr int kRankCodes = kNibble ? 32 : 16;

// Codes of ranks in vectors of 16 bytes, of which each lies in one group.
struct RankVectors {
  RankedCodes ranked;
  Divider by_group;  // vectors of a group
  bool half;         // sums in float16

  template <bool kNibble>
  static bool fits(const RankedCodes& ranked, std::int64_t elements) {
    constexpr int kCodes = kRankCodes<kNibble>;
    return elements % kCodes == 0 && elements / kCodes < kMaxIndex &&
           (ranked.size % kCodes == 0 || ranked.size >= elements) &&
           (ranked.ranks == 1 || ranked.rank_bytes % kVectorBytes == 0) &&
           aligned_to(ranked.codes, kVectorBytes);
  }
  template <bool kNibble>
  static RankVectors of(const RankedCodes& ranked, bool half) {
    const std::int64_t vectors =
        std::min(std::max<std::int64_t>(ranked.size / kRankCodes<kNibble>, 1), kMaxIndex);
    return {ranked, Divider(static_cast<std::uint32_t>(vectors)), half};
  }
};

// sum_vector() for the rare case, out of line so that the common one keeps its registers.
template <bool kNibble>
__device__ __noinline__ void sum_any_vector(const RankedCodes& ranked, bool half,
                                            std::int64_t first, float (&sums)[kSummed]) {
  sum_vector<kNibble>(ranked, half, first, sums);
}

// Adds all ranks' vectors, kLoads vectors at a time. False, with sums that mean nothing, where
// GroupNumbers cannot have the numbers.
template <bool kNibble, bool kOffsets, int kLoads, int kVectors>
__device__ __forceinline__ bool add_ordinary(const RankVectors& vectors,
                                             const std::uint32_t (&at)[kVectors],
                                             float (&sums)[kVectors][kRankCodes<kNibble>]) {
  using Numbers = GroupNumbers<kNibble>;
  constexpr int kBatch = kLoads / kVectors, kPerWord = Numbers::kPerWord;
  const RankedCodes& ranked = vectors.ranked;
  const std::uint8_t* codes[kVectors];
  const float* rows[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    codes[i] = ranked.codes + std::int64_t{at[i]} * kVectorBytes;
    rows[i] = ranked.parameters + vectors.by_group.quotient(at[i]) * ranked.row_stride;
#pragma unroll
    for (int j = 0; j < kRankCodes<kNibble>; ++j) sums[i][j] = 0.0f;
  }
  const bool offsets = kOffsets && ranked.form == math::GroupForm::Asymmetric;
  bool ordinary = true;
#pragma unroll 1
  for (int left = ranked.ranks; left > 0; left -= kBatch) {
    uint4 words[kBatch][kVectors];
    math::GroupPair stored[kBatch][kVectors];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (b >= left) continue;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        words[b][i] = load_once(codes[i]);
        stored[b][i] = {load_single(rows[i]), offsets ? load_single(rows[i] + 1) : 0.0f};
        codes[i] += ranked.rank_bytes;
        rows[i] += ranked.rank_floats;
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (b >= left) continue;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        ordinary &= Numbers::is_ordinary(kSummedForm, stored[b][i]);
        const Numbers numbers(stored[b][i]);
        const std::uint32_t each[4] = {words[b][i].x, words[b][i].y, words[b][i].z, words[b][i].w};
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          float values[kPerWord];
          numbers.of_word(each[word], values);
#pragma unroll
          for (int j = 0; j < kPerWord; ++j)
            sums[i][word * kPerWord + j] += kOffsets ? values[j] + stored[b][i].second : values[j];
        }
      }
    }
  }
  return ordinary;
}

__device__ __noinline__ inline float divided(float sum, float ranks) {
  return math::mean_of<false>(sum, ranks);
}
template <int kVectors, int kCodes>
__device__ __forceinline__ void divide_sums(int ranks, float (&sums)[kVectors][kCodes]) {
  const auto count = static_cast<float>(ranks);
  // The inverse of a power of two is exact.
  const bool by_product = (ranks & (ranks - 1)) == 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
#pragma unroll
    for (int j = 0; j < kCodes; ++j)
      sums[i][j] = by_product ? sums[i][j] * (1.0f / count) : divided(sums[i][j], count);
}

// The sums of the vectors whose numbers are `at`. kOffsets: groups may have offsets.
template <bool kNibble, bool kOffsets, int kLoads, int kVectors>
__device__ __forceinline__ void sum_vectors(const RankVectors& vectors,
                                            const std::uint32_t (&at)[kVectors],
                                            float (&sums)[kVectors][kRankCodes<kNibble>]) {
  constexpr int kCodes = kRankCodes<kNibble>;
  if (!vectors.half && add_ordinary<kNibble, kOffsets, kLoads>(vectors, at, sums)) {
    if (vectors.ranked.mean) divide_sums(vectors.ranked.ranks, sums);
    return;
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
#pragma unroll
    for (int first = 0; first < kCodes; first += kSummed) {
      float each[kSummed];
      sum_any_vector<kNibble>(vectors.ranked, vectors.half, std::int64_t{at[i]} * kCodes + first,
                              each);
#pragma unroll
      for (int j = 0; j < kSummed; ++j) sums[i][first + j] = each[j];
    }
}

}  // namespace planq::cuda
