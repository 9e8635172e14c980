// Codebooks in shared memory: the table of arithmetic.h, and buckets, with which most searches are
// one load and one addition.
//
// The upper bits of a quotient, sign first, are the number of its bucket. A bucket holds at most
// one threshold, and its entry has the rank in the upper bits. The sum of entry and quotient
// carries into the rank exactly if the quotient exceeds the threshold. A caller's codebook may put
// two thresholds into a bucket, or have codes that are not ranks; then bisection searches it.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/memory_access.cuh"
#include "ops/codebook/arithmetic.h"

namespace planq::cuda {

inline constexpr int kCodebookThreads = 256, kEncodeThreads = 512;

// Where a table comes from: a given codebook in memory, or a compiled-in one.
struct CodebookSource {
  const float* given = nullptr;
  int entries = 0;
  math::NibbleTable nibbles{};  // of a 4-bit codebook that is not given
  // The size of an entry. A variable, because for a constant the compiler would shift and mask
  // instead of multiplying, and shifts compete with the other integer instructions of the search.
  std::uint32_t entry_bytes = 4;
};

// Not inlined: few tables need it, and its instructions would lie between those that all thread
// blocks fetch.
template <int kCapacity>
__device__ __noinline__ void rank_zeros_aside(math::CodebookTable<kCapacity>& table) {
  math::rank_zeros(table);
}

// math::set_given() by all threads of a thread block, with barriers.
template <int kCapacity>
__device__ __forceinline__ void build_given(math::CodebookTable<kCapacity>& table,
                                            const CodebookSource& source) {
  constexpr bool kFourBit = math::CodebookTable<kCapacity>::kFourBit;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int kWarps = (kCapacity + kWarp - 1) / kWarp;
  static_assert(kCapacity <= kCodebookThreads);
  __shared__ float highest[kWarps];
  const int i = static_cast<int>(threadIdx.x), lane = i % kWarp, warp = i / kWarp;
  if (i < kCapacity) {
    table.value[i] = i < source.entries ? __ldg(source.given + i) : math::canonical_nan<float>();
    table.code[i] = static_cast<std::uint8_t>(i);
  }
  __syncthreads();
  // A running maximum makes thresholds non-decreasing: within a warp, then over earlier warps.
  const bool exists = i + 1 < source.entries;
  float threshold = exists
                        ? math::threshold_between(i, table.value[i], table.value[i + 1], !kFourBit)
                        : -kInfinity;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const float before = __shfl_up_sync(kAllLanes, threshold, step);
    if (lane >= step) threshold = fmaxf(threshold, before);
  }
  if (lane == kWarp - 1 && warp < kWarps) highest[warp] = threshold;
  const bool swapped =
      __syncthreads_or(exists && math::swapped_zeros(table.value[i], table.value[i + 1]));
#pragma unroll
  for (int before = 0; before < kWarps - 1; ++before)
    if (before < warp) threshold = fmaxf(threshold, highest[before]);
  if (i < kCapacity) table.threshold[i] = exists ? threshold : kInfinity;
  const int zero = __syncthreads_count(exists && 0.0f > threshold);
  if (i == 0) {
    table.ranks = source.entries;
    table.mirrored = false;
    table.zeros_swapped = swapped;
    if (swapped) rank_zeros_aside(table);
    table.zero = table.code_at(zero);
  }
  __syncthreads();
}

// Loads the table alone into shared memory, with barriers.
__device__ __forceinline__ void load_table(math::NibbleTable& table, const CodebookSource& source) {
  if (source.given) {
    build_given(table, source);
  } else {
    if (threadIdx.x == 0) table = source.nibbles;
    __syncthreads();
  }
}

// --- Buckets -----------------------------------------------------------------------------------

// Ranks of negative quotients are complemented, so that they too grow with the magnitude.
template <int kCapacity>
inline constexpr int kRankBits = kCapacity == 16 ? 4 : 8;

// Searches take quotients of magnitudes below 2.
inline constexpr float kLargestSearched = 0x1.fffffep0f;
inline constexpr std::uint32_t kSignBit = 0x80000000u, kFractionBits = 23;

// The quotient whose lowered value has these bits. The bits that number buckets are those of the
// quotient times 2^-lowered; if that is subnormal, the quotient counts as 0.
PLANQ_HD constexpr float searched_number(std::uint32_t bits, int lowered) {
  const std::uint32_t sign = bits & kSignBit;
  std::uint32_t magnitude = bits - sign;
  if (lowered > 0)
    magnitude = magnitude >> kFractionBits == 0
                    ? 0
                    : magnitude + (static_cast<std::uint32_t>(lowered) << kFractionBits);
  return std::bit_cast<float>(sign | magnitude);
}

// The range of ranks to search.
struct RankRange {
  int lowest, highest;
};

template <int kCapacity>
PLANQ_HD constexpr int rank_among(float y, const math::CodebookTable<kCapacity>& table,
                                  const RankRange& range) {
  int rank = range.lowest;
  for (auto step =
           static_cast<int>(std::bit_floor(static_cast<unsigned>(range.highest - range.lowest)));
       step > 0; step /= 2)
    if (rank + step <= range.highest && y > table.threshold[rank + step - 1]) rank += step;
  return rank;
}

// An entry from its parts. `field` is the rank, complemented for negative quotients.
template <int kCapacity>
PLANQ_HD constexpr std::uint32_t entry_of(int field, std::uint32_t threshold, std::uint32_t first) {
  constexpr std::uint32_t kBelowRank = (1u << (32 - kRankBits<kCapacity>)) - 1;
  return static_cast<std::uint32_t>(field) * (kBelowRank + 1) + (kBelowRank - threshold) - first;
}
// The entry of a bucket without a threshold.
template <int kCapacity>
PLANQ_HD constexpr std::uint32_t plain_entry(int rank, int shift, std::uint32_t bucket) {
  const std::uint32_t first = bucket << shift;
  return entry_of<kCapacity>(first >= kSignBit ? kCapacity - 1 - rank : rank, (1u << shift) - 1,
                             first);
}

// Computes the entry of a bucket: of all quotients whose bits begin with its number. Returns false
// if the bucket has several thresholds.
template <int kCapacity>
PLANQ_HD constexpr bool make_entry(const math::CodebookTable<kCapacity>& table, int shift,
                                   int lowered, std::uint32_t bucket, const RankRange& range,
                                   std::uint32_t& entry) {
  const std::uint32_t first = bucket << shift, last_bit = (1u << shift) - 1;
  const bool negative = first >= kSignBit;
  const float near = searched_number(first, lowered);
  const float far = searched_number(first + last_bit, lowered);
  const int rank = rank_among(negative ? far : near, table, range);
  const float highest = negative ? near : far, t = table.threshold[rank];
  const bool above = highest > t;
  std::uint32_t threshold = last_bit;  // no quotient exceeds it
  if (above)
    threshold = (std::bit_cast<std::uint32_t>(negative ? -t : t) - (negative ? 1 : 0)) & last_bit;
  const int field = negative ? kCapacity - 1 - rank - (above ? 1 : 0) : rank;
  entry = entry_of<kCapacity>(field, threshold, first);
  return !(above && highest > table.threshold[rank + 1]);
}

// Returns the rank of a quotient in the uppermost bits, complemented if the quotient is negative.
__device__ __forceinline__ std::uint32_t ranked(std::uint32_t bits, std::uint32_t address) {
  std::uint32_t entry;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(entry) : "r"(address));
  return entry + bits;
}

// --- 4-bit -------------------------------------------------------------------------------------

// How codes follow from ranks.
enum class CodeOrder { Ascending, Descending, DescendingWithoutEight, SignAndMagnitude };

constexpr CodeOrder code_order(Codebook codebook) {
  switch (codebook) {
    case Codebook::Fp4:
      return CodeOrder::SignAndMagnitude;
    case Codebook::Int4:
      return CodeOrder::DescendingWithoutEight;
    case Codebook::Af4:
      return CodeOrder::Descending;
    default:
      return CodeOrder::Ascending;
  }
}

// The codes of eight ranks, each in four bits.
PLANQ_HD constexpr std::uint32_t codes_of_ranks(std::uint32_t ranks, CodeOrder order) {
  constexpr std::uint32_t kEach = 0x11111111u;
  switch (order) {
    case CodeOrder::Descending:
      return ~ranks;
    case CodeOrder::DescendingWithoutEight: {
      const std::uint32_t codes = 14 * kEach - ranks;
      return codes + (codes >> 3 & kEach);
    }
    case CodeOrder::SignAndMagnitude: {
      const std::uint32_t signs = ~ranks & (8 * kEach);
      const std::uint32_t magnitudes = (ranks ^ (signs - (signs >> 3))) & (7 * kEach);
      return magnitudes ^ (magnitudes & (2 * kEach)) << 1 | signs;
    }
    default:
      return ranks;
  }
}
constexpr bool orders_codes(Codebook codebook) {
  const math::NibbleTable& table = math::nibble_table(codebook);
  for (int rank = 0; rank < table.ranks; ++rank) {
    const std::uint32_t ranks = 0x11111111u * static_cast<std::uint32_t>(rank);
    if (codes_of_ranks(ranks, code_order(codebook)) != 0x11111111u * table.code[rank]) return false;
  }
  return true;
}
static_assert(orders_codes(Codebook::Nf4) && orders_codes(Codebook::Fp4) &&
              orders_codes(Codebook::Int4) && orders_codes(Codebook::Af4));

struct DynamicSearch;

struct NibbleSearch {
  static constexpr bool kNibble = true;
  static constexpr int kShift = 20, kLowered = 0;
  static constexpr std::uint32_t kUsed = 1u << (30 - kShift);  // of each sign: below 2

  math::NibbleTable values;
  std::uint32_t entries[3 * kUsed];  // with a gap between the signs

  // Returns whether the buckets may be used. Has barriers.
  __device__ __forceinline__ bool build(const CodebookSource& source, const DynamicSearch&) {
    load_table(values, source);
    bool crowded = values.zeros_swapped ||
                   math::rank_of(kLargestSearched, values) != values.ranks - 1 ||
                   math::rank_of(-kLargestSearched, values) != 0;
#pragma unroll 1
    for (std::uint32_t at = threadIdx.x; at < 2 * kUsed; at += blockDim.x) {
      const std::uint32_t bucket = at < kUsed ? at : at + kUsed;
      crowded |=
          !make_entry(values, kShift, kLowered, bucket, {0, values.ranks - 1}, entries[bucket]);
    }
    return !__syncthreads_or(crowded);
  }
  __device__ __forceinline__ const math::NibbleTable& table(const DynamicSearch&) const {
    return values;
  }

  struct Base {
    std::uint32_t address, entry_bytes;
  };
  __device__ __forceinline__ Base base(const CodebookSource& source) const {
    return {static_cast<std::uint32_t>(__cvta_generic_to_shared(entries)), source.entry_bytes};
  }
  static __device__ __forceinline__ std::uint32_t lookup(float y, const Base& base) {
    const std::uint32_t bits = __float_as_uint(y);
    return ranked(bits, base.address + (bits >> kShift) * base.entry_bytes);
  }
};

// --- 8-bit -------------------------------------------------------------------------------------

// 8-bit searches take quotients times 2^-kByteLowered. So tiny quotients, which have no thresholds
// between them, become subnormal and share buckets.
inline constexpr int kByteLowered = 86;
inline constexpr float kByteFactor = 0x1p-86f, kSmallestByte = 0x1p-40f;
inline constexpr float kLargestLowered = 0x1p40f;  // its lowered reciprocal is still normal
inline constexpr int kByteExponents = 128 - kByteLowered;
static_assert(searched_number(1u << kFractionBits, kByteLowered) == kSmallestByte);

// Where the buckets of each sign lie in shared memory, one sign after the other.
struct ByteBuckets {
  std::uint32_t address;  // of the first one
  int shift;
  std::uint32_t entry_bytes, gap_bytes;

  __device__ __forceinline__ ByteBuckets(const std::uint32_t* entries, int bits,
                                         const CodebookSource& source)
      : address(static_cast<std::uint32_t>(__cvta_generic_to_shared(entries))),
        shift(static_cast<int>(kFractionBits) - bits),
        entry_bytes(source.entry_bytes),
        gap_bytes(((kSignBit >> shift) - used(bits)) * source.entry_bytes) {}

  static PLANQ_HD constexpr std::uint32_t used(int bits) {
    return static_cast<std::uint32_t>(kByteExponents) << bits;
  }
  // The number of the bucket at a position.
  static PLANQ_HD constexpr std::uint32_t number(std::uint32_t at, int bits) {
    return at < used(bits) ? at : at - used(bits) + (kSignBit >> (kFractionBits - bits));
  }
  __device__ __forceinline__ std::uint32_t lookup(float y) const {
    const std::uint32_t bits = __float_as_uint(y);
    return ranked(bits, address + (bits >> shift) * entry_bytes - (bits >> 31) * gap_bytes);
  }
};

// bitsandbytes' dynamic map. With 6 bits of the fraction, its buckets hold at most one threshold.
// Buckets of lower exponents than those kept here have none.
struct alignas(16) DynamicSearch {
  static constexpr int kBits = 6, kShift = static_cast<int>(kFractionBits) - kBits;
  static constexpr std::uint32_t kKept = 24u << kBits;  // of each sign
  static constexpr std::uint32_t kUsed = ByteBuckets::used(kBits), kFree = kUsed - kKept;
  math::ByteTable table;
  alignas(16) std::uint32_t entries[2 * kKept];

  // Computes the entry at a position among those of both signs; false if it has several thresholds.
  static constexpr bool make(const math::ByteTable& table, std::uint32_t at, std::uint32_t& entry) {
    return make_entry(table, kShift, kByteLowered, ByteBuckets::number(at, kBits),
                      {0, table.ranks - 1}, entry);
  }
  // The entry of a bucket that is not kept: that of the first kept one, corrected for its number.
  PLANQ_HD constexpr std::uint32_t free_entry(std::uint32_t sign, std::uint32_t at) const {
    return entries[sign * kKept] + ((kFree - at) << kShift);
  }
};
constexpr DynamicSearch make_dynamic_search() {
  using Search = DynamicSearch;
  Search search{math::kDynamicTable, {}};
  for (std::uint32_t at = 0; at < 2 * Search::kKept; ++at)
    Search::make(search.table, Search::kFree * (at < Search::kKept ? 1 : 2) + at,
                 search.entries[at]);
  return search;
}
constexpr bool holds(const DynamicSearch& search) {
  using Search = DynamicSearch;
  for (std::uint32_t at = 0; at < 2 * Search::kUsed; ++at) {
    const std::uint32_t sign = at / Search::kUsed, place = at % Search::kUsed;
    const std::uint32_t entry = place < Search::kFree
                                    ? search.free_entry(sign, place)
                                    : search.entries[sign * Search::kKept + place - Search::kFree];
    std::uint32_t expected = 0;
    if (!Search::make(search.table, at, expected) || entry != expected) return false;
  }
  return true;
}
static_assert(holds(make_dynamic_search()));

// Copies an object to shared memory, by all threads of a thread block.
template <class T>
__device__ __forceinline__ void copy_shared(T& to, const T& from) {
  using Unit = std::conditional_t<alignof(T) % alignof(uint4) == 0, uint4, std::uint32_t>;
  static_assert(sizeof(T) % sizeof(Unit) == 0 && alignof(T) % alignof(Unit) == 0);
  auto* target = reinterpret_cast<Unit*>(&to);
  const auto* source = reinterpret_cast<const Unit*>(&from);
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < sizeof(T) / sizeof(Unit); i += blockDim.x)
    target[i] = source[i];
}

// The search in the compiled-in dynamic map.
struct CompiledByteSearch {
  static constexpr bool kNibble = false;
  using Search = DynamicSearch;
  alignas(16) std::uint32_t entries[2][Search::kUsed];

  __device__ __forceinline__ bool build(const CodebookSource&, const DynamicSearch& dynamic) {
    static_assert(Search::kFree % 4 == 0 && Search::kKept % 4 == 0);
    for (std::uint32_t i = threadIdx.x; i < 2 * Search::kKept / 4; i += blockDim.x) {
      const std::uint32_t sign = i < Search::kKept / 4 ? 0 : 1, at = 4 * i - sign * Search::kKept;
      *reinterpret_cast<uint4*>(&entries[sign][Search::kFree + at]) =
          reinterpret_cast<const uint4*>(dynamic.entries)[i];
    }
    for (std::uint32_t i = threadIdx.x; i < Search::kFree; i += blockDim.x) {
      entries[0][i] = dynamic.free_entry(0, i);
      entries[1][i] = dynamic.free_entry(1, i);
    }
    __syncthreads();
    return true;
  }
  __device__ __forceinline__ const math::ByteTable& table(const DynamicSearch& dynamic) const {
    return dynamic.table;
  }

  using Base = ByteBuckets;
  __device__ __forceinline__ Base base(const CodebookSource& source) const {
    return Base(entries[0], Search::kBits, source);
  }
  static __device__ __forceinline__ std::uint32_t lookup(float y, const Base& base) {
    return base.lookup(y);
  }
};

// The search in a given 8-bit codebook.
struct GivenByteSearch {
  static constexpr bool kNibble = false;
  static constexpr int kMostBits = 7, kRows = 2 * kByteExponents, kEntries = 256;
  static_assert(kRows <= kEncodeThreads, "a warp has a lane for each of its rows");
  math::ByteTable given;
  std::uint32_t entries[2 * ByteBuckets::used(kMostBits)];
  int bits;

  __device__ __forceinline__ bool build(const CodebookSource& source, const DynamicSearch&) {
    build_given(given, source);
    if (given.zeros_swapped || !bounded(source.entries)) return false;
#pragma unroll 1
    for (int try_bits = DynamicSearch::kBits; try_bits <= kMostBits; ++try_bits) {
      bits = try_bits;
      if (!__syncthreads_or(crowded(try_bits))) return true;
    }
    return false;
  }
  // Whether all thresholds lie in the range of the buckets. Each lane checks one end.
  __device__ __forceinline__ bool bounded(int ranks) const {
    const int lane = static_cast<int>(threadIdx.x % kWarp), end = lane / 2;
    const float magnitude = end == 0 ? 0.0f : end == 1 ? kSmallestByte : kLargestSearched;
    const int rank = math::rank_of(lane % 2 == 0 ? magnitude : -magnitude, given);
    const int zero = __shfl_sync(kAllLanes, rank, 0);
    const int expected = end < 2 ? zero : lane % 2 == 0 ? ranks - 1 : 0;
    return __all_sync(kAllLanes, rank == expected);
  }
  // Computes all buckets. A warp takes the buckets of one exponent, which have few ranks. Its lanes
  // find the ranges of ranks beforehand, each for one exponent.
  __device__ __forceinline__ bool crowded(int fraction_bits) {
    const int shift = static_cast<int>(kFractionBits) - fraction_bits;
    const int warps = static_cast<int>(blockDim.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const auto row_of = [&](int turn) {
      return static_cast<int>(threadIdx.x) / kWarp + turn * warps;
    };
    const auto first_of = [&](int row) { return static_cast<std::uint32_t>(row) << fraction_bits; };
    const std::uint32_t near =
        ByteBuckets::number(first_of(min(row_of(lane), kRows - 1)), fraction_bits) << shift;
    const std::uint32_t far = near + (1u << kFractionBits) - 1;
    const int near_rank = math::rank_of(searched_number(near, kByteLowered), given);
    const int far_rank = math::rank_of(searched_number(far, kByteLowered), given);
    bool crowded = false;
#pragma unroll 1
    for (int turn = 0; row_of(turn) < kRows; ++turn) {
      const int one = __shfl_sync(kAllLanes, near_rank, turn);
      const int other = __shfl_sync(kAllLanes, far_rank, turn);
      const std::uint32_t first = first_of(row_of(turn)), end = first_of(row_of(turn) + 1);
      if (one == other) {
        const std::uint32_t bucket = ByteBuckets::number(first, fraction_bits);
        const std::uint32_t entry = plain_entry<kEntries>(one, shift, bucket);
        for (std::uint32_t at = first + lane; at < end; at += kWarp)
          entries[at] = entry - ((at - first) << shift);
        continue;
      }
#pragma unroll 2
      for (std::uint32_t at = first + lane; at < end; at += kWarp)
        crowded |= !make_entry(given, shift, kByteLowered, ByteBuckets::number(at, fraction_bits),
                               {min(one, other), max(one, other)}, entries[at]);
    }
    return crowded;
  }
  __device__ __forceinline__ const math::ByteTable& table(const DynamicSearch&) const {
    return given;
  }

  using Base = ByteBuckets;
  __device__ __forceinline__ Base base(const CodebookSource& source) const {
    return Base(entries, bits, source);
  }
  static __device__ __forceinline__ std::uint32_t lookup(float y, const Base& base) {
    return base.lookup(y);
  }
};

}  // namespace planq::cuda
