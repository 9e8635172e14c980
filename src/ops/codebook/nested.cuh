// Nested statistics: the mean of absmax by pairwise sums in a fixed order, and codes of the
// differences from it.
#pragma once

#include "cuda/tree_sum.cuh"
#include "ops/codebook/codebook_cuda.h"
#include "ops/codebook/encode.cuh"

namespace planq::cuda {

// --- The mean ----------------------------------------------------------------------------------

// The sum of a leaf (math/tree_sum.h) by all lanes of a warp; every lane gets the result.
template <class C>
__device__ __forceinline__ C leaf_sum(const C* values, std::int64_t count) {
  constexpr int kEach = 4;
  struct alignas(16) Quad {
    C of[kEach];
  };
  Quad quads[kLeafGroups<kEach>];
#pragma unroll
  for (int g = 0; g < kLeafGroups<kEach>; ++g) {
    const int at = leaf_place<kEach>(g);
    if (at + kEach <= count) {
      quads[g] = *reinterpret_cast<const Quad*>(values + at);
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i) quads[g].of[i] = at + i < count ? values[at + i] : C{0};
    }
  }
  const auto terms = [&](int group, C(&to)[kEach]) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) to[i] = quads[group].of[i];
  };
  return join_leaf<kEach, C>(terms, AddNeighbours{});
}

template <class C>
struct SumArgs {
  const C* values;
  C* sums;  // one a leaf
  std::int64_t count, leaves;
};

// One warp sums one leaf.
template <class C>
__global__ void __launch_bounds__(kCodebookThreads)
    sum_leaves(const __grid_constant__ SumArgs<C> args) {
  const std::int64_t leaf = (std::int64_t{blockIdx.x} * kCodebookThreads + threadIdx.x) / kWarp;
  wait_for_previous();
  if (leaf >= args.leaves) return;
  const std::int64_t first = leaf * math::kSumLeaf;
  const C sum = leaf_sum(args.values + first, args.count - first);
  if (threadIdx.x % kWarp == 0) store_single(args.sums + leaf, sum);
}

// The sum of up to kLastSums values, for all threads of a block.
template <class C>
__device__ __forceinline__ C last_sum(const C* values, std::int64_t count) {
  __shared__ C sums[kWarp];
  static_assert(kLastSums <= std::int64_t{kWarp} * math::kSumLeaf);
  const int leaves = static_cast<int>((count + math::kSumLeaf - 1) / math::kSumLeaf);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
#pragma unroll 1
  for (int leaf = static_cast<int>(threadIdx.x) / kWarp; leaf < leaves;
       leaf += kCodebookThreads / kWarp) {
    const int first = leaf * math::kSumLeaf;
    const C sum = leaf_sum(values + first, count - first);
    if (lane == 0) sums[leaf] = sum;
  }
  __syncthreads();
  return join_lanes(lane < leaves ? sums[lane] : C{0}, AddNeighbours{});
}

// --- Codes of absmax ---------------------------------------------------------------------------

template <class C>
struct NestArgs {
  const C* absmax;
  const C* sums;  // or absmax, where they are few
  std::int64_t left;
  C* mean;
  std::uint8_t* output;
  C* nested_absmax;
  std::int64_t count, block_size, blocks;
  CodebookSource source;  // of a compiled-in codebook
  bool quads;             // four neighbours of each block are aligned to their size
};

// How many absmax a lane holds at a time, and how many a warp.
inline constexpr int kHeld = 8, kHeldByWarp = kHeld * kWarp;

// Up to kHeldByWarp absmax less their mean, in the registers of a warp. load_quads() loads exactly
// that many, four neighbours to a lane.
template <class C>
struct Differences {
  static constexpr int kQuads = kHeld / 4;
  C of[kHeld];

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % kWarp); }
  static __device__ __forceinline__ int quad_at(int quad) { return 4 * (quad * kWarp + lane()); }
  __device__ __forceinline__ void load(const C* absmax, int count, C mean) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int at = i * kWarp + lane();
      of[i] = at < count ? absmax[at] - mean : C{0};
    }
  }
  __device__ __forceinline__ void load_quads(const C* absmax, C mean) {
    struct alignas(16) Quad {
      C of[4];
    } quads[kQuads];
#pragma unroll
    for (int q = 0; q < kQuads; ++q) quads[q] = *reinterpret_cast<const Quad*>(absmax + quad_at(q));
#pragma unroll
    for (int i = 0; i < kHeld; ++i) of[i] = quads[i / 4].of[i % 4] - mean;
  }
  __device__ __forceinline__ MagnitudeKey<C> largest() const {
    MagnitudeKey<C> largest = 0;
#pragma unroll
    for (const C each : of) {
      const auto key = single_key<C>(each, false);
      largest = key > largest ? key : largest;
    }
    return largest;
  }
};

// Not inlined because it is rare.
template <class C>
__device__ __noinline__ std::uint8_t slow_code(C difference, C absmax,
                                               const math::ByteTable& table) {
  return any_code(difference, math::block_division(absmax, Quotient::Reciprocal), table);
}

// Encodes differences: by buckets, or by slow_code() where buckets are not exact.
template <class C>
struct DifferenceCodes {
  using Search = CompiledByteSearch;
  static constexpr bool kLowers = kLowersInverse<Search, C, false>;
  const DynamicSearch& dynamic;
  typename Search::Base base;
  C absmax;
  VectorBlock<C> block;
  bool fast_is_exact;

  __device__ __forceinline__ DifferenceCodes(const DynamicSearch& table,
                                             const typename Search::Base& buckets, C largest)
      : dynamic(table), base(buckets), absmax(largest) {
    block.absmax = divisor_of(absmax);
    block.inverse = searched_inverse<kLowers>(block.absmax);
    fast_is_exact = divides_fast<kLowers>(block.absmax);
  }
  // The code in the uppermost byte.
  __device__ __forceinline__ std::uint32_t fast(C difference) const {
    bool needs_slow_path = false;
    const float y =
        searched_quotient<C, Search, false, false>(difference, block, false, needs_slow_path);
    const std::uint32_t rank = Search::lookup(y, base);
    return __float_as_int(y) < 0 ? ~rank : rank;
  }
  __device__ __forceinline__ void store(const Differences<C>& held, int count,
                                        std::uint8_t* output) const {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int at = i * kWarp + held.lane();
      if (at < count)
        store_once(output + at, fast_is_exact ? static_cast<std::uint8_t>(fast(held.of[i]) >> 24)
                                              : slow_code(held.of[i], absmax, dynamic.table));
    }
  }
  __device__ __forceinline__ void store_quads(const Differences<C>& held,
                                              std::uint8_t* output) const {
#pragma unroll
    for (int q = 0; q < held.kQuads; ++q) {
      const C* of = held.of + 4 * q;
      const std::uint32_t low = __byte_perm(fast(of[0]), fast(of[1]), 0x0073);
      const std::uint32_t high = __byte_perm(fast(of[2]), fast(of[3]), 0x0073);
      store_word<4>(output + held.quad_at(q), __byte_perm(low, high, 0x5410));
    }
  }
};

// A warp encodes one block of absmax. A short block is loaded only once.
template <class C>
__device__ __forceinline__ void nest_block(const NestArgs<C>& args, const DynamicSearch& dynamic,
                                           const CompiledByteSearch::Base& base, C mean,
                                           std::int64_t block) {
  const BlockSpan span = block_span(block, args.block_size, args.count);
  const auto left = [&](std::int64_t at) {
    return static_cast<int>(min(span.last - at, std::int64_t{kHeldByWarp}));
  };
  Differences<C> held;
  const bool quads = args.quads && span.last - span.first == kHeldByWarp;
  MagnitudeKey<C> largest = 0;
  if (quads) {
    held.load_quads(args.absmax + span.first, mean);
    largest = held.largest();
  }
#pragma unroll 1
  for (std::int64_t at = span.first; !quads && at < span.last; at += kHeldByWarp) {
    held.load(args.absmax + at, left(at), mean);
    largest = max(largest, held.largest());
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, step));
  const DifferenceCodes<C> codes(dynamic, base, math::stored_absmax(magnitude_of<C>(largest)));
  if (threadIdx.x % kWarp == 0) store_single(args.nested_absmax + block, codes.absmax);
  if (quads && codes.fast_is_exact) {
    codes.store_quads(held, args.output + span.first);
    return;
  }
#pragma unroll 1
  for (std::int64_t at = span.first; at < span.last; at += kHeldByWarp) {
    if (quads || span.last - span.first > kHeldByWarp) held.load(args.absmax + at, left(at), mean);
    codes.store(held, left(at), args.output + at);
  }
}

// A warp for each block of absmax, in a grid-stride loop. Every thread block computes the mean
// itself.
template <class C>
__device__ __forceinline__ void nest_all(const NestArgs<C>& args, const DynamicSearch& dynamic) {
  __shared__ CompiledByteSearch search;
  search.build(args.source, dynamic);
  const auto base = search.base(args.source);
  wait_for_previous();
  const C mean = math::mean_of(last_sum(args.sums, args.left), args.count);
  if (blockIdx.x == 0 && threadIdx.x == 0) store_single(args.mean, mean);
  const std::int64_t warps = std::int64_t{gridDim.x} * (kCodebookThreads / kWarp);
#pragma unroll 1
  for (std::int64_t block =
           std::int64_t{blockIdx.x} * (kCodebookThreads / kWarp) + threadIdx.x / kWarp;
       block < args.blocks; block += warps)
    nest_block(args, dynamic, base, mean, block);
}

}  // namespace planq::cuda
