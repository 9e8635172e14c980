// Codebooks in shared memory: the table of math/codebook.h, and buckets that answer most searches
// by one load and one comparison.
//
// A bucket is a range of quotients with one threshold at most. 4-bit tables cut [-1, 1] into equal
// buckets, of which each lane of a warp has a copy in its own bank. 8-bit tables cut by the upper
// bits of a float, so that maps of several decades fit. A caller's codebook may put two thresholds
// into a bucket; it is then searched by bisection.
#pragma once

#include <cstdint>

#include "cuda/load_store.cuh"
#include "math/codebook.h"

namespace planq::cuda {

inline constexpr int kCodebookThreads = 256;

// Where a table comes from: a caller's memory, or this program.
struct CodebookSource {
  const float* given = nullptr;
  int entries = 0;
  math::NibbleTable nibbles{};  // of a 4-bit codebook that is not given
};

__device__ __forceinline__ float next_above(float x) { return -math::next_below(-x); }

// math::set_given() by all threads of a block, which wait for each other here.
template <int kCapacity>
__device__ __forceinline__ void build_given(math::CodebookTable<kCapacity>& table,
                                            const CodebookSource& source) {
  static_assert(kCapacity <= kCodebookThreads);
  const int i = static_cast<int>(threadIdx.x);
  if (i < kCapacity) {
    table.value[i] =
        i < source.entries ? load_single(source.given + i) : math::canonical_nan<float>();
    if constexpr (math::CodebookTable<kCapacity>::kRanked)
      table.code[i] = static_cast<std::uint8_t>(i);
  }
  __syncthreads();
  if (threadIdx.x < kWarp) {
    // A lane for a run of thresholds, then the largest of the lanes before it.
    constexpr int kRun = (kCapacity + kWarp - 1) / kWarp;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const int first = i * kRun;
    float highest = -kInfinity;
#pragma unroll
    for (int j = first; j < first + kRun; ++j) {
      if (j + 1 >= source.entries) break;
      const float next = math::threshold_between(j, table.value[j], table.value[j + 1],
                                                 !math::CodebookTable<kCapacity>::kRanked);
      highest = next > highest ? next : highest;
    }
    float before = __shfl_up_sync(kAllLanes, highest, 1);
    if (i == 0) before = -kInfinity;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const float other = __shfl_up_sync(kAllLanes, before, step);
      if (i >= step) before = fmaxf(before, other);
    }
#pragma unroll
    for (int j = first; j < first + kRun && j < kCapacity; ++j) {
      if (j + 1 < source.entries) {
        const float next = math::threshold_between(j, table.value[j], table.value[j + 1],
                                                   !math::CodebookTable<kCapacity>::kRanked);
        before = next > before ? next : before;
      }
      table.threshold[j] = j + 1 < source.entries ? before : kInfinity;
    }
  }
  __syncthreads();
  if (i == 0) {
    table.ranks = source.entries;
    table.mirrored = false;
    table.zero = table.code_at(math::rank_of(0.0f, table));
  }
  __syncthreads();
}

// The table alone, in shared memory; the block waits.
__device__ __forceinline__ void load_table(math::NibbleTable& table, const CodebookSource& source) {
  if (source.given) {
    build_given(table, source);
  } else {
    if (threadIdx.x == 0) table = source.nibbles;
    __syncthreads();
  }
}

struct DynamicSearch;

// --- 4-bit -------------------------------------------------------------------------------------

struct NibbleSearch {
  static constexpr int kBuckets = 33;  // of 1/16 from -1 on; the last one is for 1

  math::NibbleTable values;
  // Of each lane: a threshold, and the codes below and above it, each in both halves of a byte.
  float thresholds[kBuckets][kWarp];
  std::uint32_t codes[kBuckets][kWarp];

  // Returns whether the buckets may be used. The block waits.
  __device__ __forceinline__ bool build(const CodebookSource& source, const DynamicSearch&) {
    load_table(values, source);
    // A warp makes the buckets, a lane each, and all warps copy them for all lanes.
    static_assert(kBuckets == kWarp + 1);
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    const Bucket own = bucket_of(lane), last = bucket_of(kWarp);
    // Quotients are bounded to [-1, 1] before they are searched.
    bool crowded = own.crowded || last.crowded;
    crowded |= rank(-std::numeric_limits<float>::infinity()) != rank(-1.0f);
    crowded |= rank(std::numeric_limits<float>::infinity()) != rank(1.0f);
    const int warps = static_cast<int>(blockDim.x) / kWarp;
    for (int at = static_cast<int>(threadIdx.x) / kWarp; at < kBuckets; at += warps) {
      const float threshold = __shfl_sync(kAllLanes, own.threshold, at % kWarp);
      const std::uint32_t both = __shfl_sync(kAllLanes, own.codes, at % kWarp);
      thresholds[at][lane] = at < kWarp ? threshold : last.threshold;
      codes[at][lane] = at < kWarp ? both : last.codes;
    }
    return !__syncthreads_or(crowded);
  }
  __device__ __forceinline__ const math::NibbleTable& table() const { return values; }
  __device__ __forceinline__ int rank(float y) const { return math::rank_of(y, values); }

  struct Bucket {
    float threshold;
    std::uint32_t codes;
    bool crowded;
  };
  __device__ __forceinline__ Bucket bucket_of(int bucket) const {
    const float first = static_cast<float>(bucket - 16) / 16.0f;
    const float last = math::next_below(first + 0.0625f);
    const int low = rank(first), high = rank(bucket == kBuckets - 1 ? first : last);
    return {high > low ? values.threshold[low] : last,
            (values.code_at(low) | std::uint32_t{values.code_at(high)} << 8) * 0x11u,
            high > low + 1};
  }

  using Base = std::uint32_t;
  __device__ __forceinline__ Base base() const { return lane_base(); }
  // What lookup() wants to know of a lane.
  __device__ __forceinline__ std::uint32_t lane_base() const {
    return static_cast<std::uint32_t>(
               __cvta_generic_to_shared(&thresholds[0][threadIdx.x % kWarp])) +
           0x80000000u;
  }
  // The code of a quotient in [-1, 1] or just above, in both halves of the low byte.
  static __device__ __forceinline__ std::uint32_t lookup(float y, std::uint32_t base) {
    // floor(16 y + 16) in the low bits of 2^23, whose other bits the shift and the base cancel.
    const std::uint32_t bucket = __float_as_uint(__fmaf_rd(y, 16.0f, 8388624.0f));
    const std::uint32_t address = (bucket << 7) + base;
    static_assert(kWarp * sizeof(float) == 1 << 7 && sizeof thresholds == 4224);
    float threshold;
    std::uint32_t codes;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(threshold) : "r"(address));
    asm volatile("ld.shared.u32 %0, [%1+4224];" : "=r"(codes) : "r"(address));
    return y > threshold ? codes >> 8 : codes;
  }
};

// --- 8-bit -------------------------------------------------------------------------------------

// Buckets of the magnitudes from 2^-24 to 2, one for each sign: sign, exponent and some bits of the
// fraction choose it. An entry has the fraction's other bits of its threshold on top, and a code at
// the bottom, which is one more for magnitudes beyond the threshold. Codes of negative quotients
// are complemented, so that theirs grow with the magnitude as well.
struct ByteBuckets {
  static constexpr int kLowest = 103, kExponents = 25, kMostBits = 7;
  static constexpr float kSmallest = 0x1p-24f, kLargest = 0x1.fffffep0f;
  static constexpr int kMost = kExponents << kMostBits;

  std::uint32_t entries[2 * kMost];

  // One entry; false where a bucket has several thresholds.
  PLANQ_HD static constexpr bool make(const math::ByteTable& table, int bits, int at,
                                      std::uint32_t& entry) {
    const int shift = 23 - bits;
    const std::uint32_t first = static_cast<std::uint32_t>((kLowest << bits) + at / 2) << shift;
    const std::uint32_t last = first + (1u << shift) - 1;
    const bool negative = at % 2 == 1;
    const auto rank = [&](std::uint32_t magnitude) {
      const float y = std::bit_cast<float>(magnitude);
      return math::rank_of(negative ? -y : y, table);
    };
    const int near = rank(first), far = rank(last);
    const int steps = negative ? near - far : far - near;
    const std::uint32_t code = static_cast<std::uint32_t>(negative ? 255 - near : near);
    std::uint32_t threshold = last;  // which nothing exceeds
    if (steps == 1) {
      const float t = table.threshold[negative ? far : near];
      threshold = std::bit_cast<std::uint32_t>(negative ? -t : t) - (negative ? 1 : 0);
    }
    entry = threshold << (32 - shift) | code;
    return steps <= 1;
  }
};

// bitsandbytes' dynamic map, whose buckets hold one threshold by 6 bits of the fraction.
struct alignas(16) DynamicSearch {
  static constexpr int kBits = 6;
  math::ByteTable table;
  std::uint32_t entries[2 * (ByteBuckets::kExponents << kBits)];
};
constexpr DynamicSearch make_dynamic_search() {
  DynamicSearch search{math::kDynamicTable, {}};
  int at = 0;
  for (std::uint32_t& entry : search.entries)
    ByteBuckets::make(search.table, DynamicSearch::kBits, at++, entry);
  return search;
}

// Memory that a block copies to shared memory.
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

// The code of a quotient below 2 in the low byte, complemented if y is negative. `base` is where
// bucket 0 would be.
__device__ __forceinline__ std::uint32_t byte_lookup(float y, std::uint32_t base, int shift) {
  const std::uint32_t magnitude = __float_as_uint(fmaxf(fabsf(y), ByteBuckets::kSmallest));
  const std::uint32_t sign = __float_as_uint(y) >> 29 & 4u;
  std::uint32_t entry;
  asm volatile("ld.shared.u32 %0, [%1];"
               : "=r"(entry)
               : "r"((magnitude >> shift) * 8 + (sign + base)));
  return entry + (magnitude << (32 - shift) > entry ? 1u : 0u);
}
__device__ __forceinline__ std::uint32_t bucket_base(const std::uint32_t* entries, int bits) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(entries)) -
         (static_cast<std::uint32_t>(ByteBuckets::kLowest) << (bits + 3));
}

// The compiled-in table, copied.
struct CompiledByteSearch {
  DynamicSearch search;

  __device__ __forceinline__ bool build(const CodebookSource&, const DynamicSearch& dynamic) {
    copy_shared(search, dynamic);
    __syncthreads();
    return true;
  }
  __device__ __forceinline__ const math::ByteTable& table() const { return search.table; }

  struct Base {
    std::uint32_t address;
  };
  __device__ __forceinline__ Base base() const {
    return {bucket_base(search.entries, DynamicSearch::kBits)};
  }
  static __device__ __forceinline__ std::uint32_t lookup(float y, const Base& base) {
    return byte_lookup(y, base.address, 23 - DynamicSearch::kBits);
  }
};

// A caller's table.
struct GivenByteSearch {
  math::ByteTable given;
  ByteBuckets buckets;
  int bits;

  __device__ __forceinline__ bool build(const CodebookSource& source, const DynamicSearch&) {
    build_given(given, source);
    // The lowest buckets take everything down to 0.
    const int zero = math::rank_of(0.0f, given);
    if (zero != math::rank_of(ByteBuckets::kSmallest, given) ||
        zero != math::rank_of(-ByteBuckets::kSmallest, given) ||
        math::rank_of(ByteBuckets::kLargest, given) != source.entries - 1 ||
        math::rank_of(-ByteBuckets::kLargest, given) != 0)
      return false;
#pragma unroll 1
    for (int try_bits = DynamicSearch::kBits; try_bits <= ByteBuckets::kMostBits; ++try_bits) {
      bool crowded = false;
      for (int at = static_cast<int>(threadIdx.x); at < 2 * (ByteBuckets::kExponents << try_bits);
           at += blockDim.x)
        crowded |= !ByteBuckets::make(given, try_bits, at, buckets.entries[at]);
      bits = try_bits;
      if (!__syncthreads_or(crowded)) return true;
    }
    return false;
  }
  __device__ __forceinline__ const math::ByteTable& table() const { return given; }

  struct Base {
    std::uint32_t address;
    int shift;
  };
  __device__ __forceinline__ Base base() const {
    return {bucket_base(buckets.entries, bits), 23 - bits};
  }
  static __device__ __forceinline__ std::uint32_t lookup(float y, const Base& base) {
    return byte_lookup(y, base.address, base.shift);
  }
};

}  // namespace planq::cuda
