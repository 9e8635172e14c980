// The kernels of sums_cuda.h. A warp measures a leaf, whose place in the tree is that of its
// elements, so neither the grid nor the size of tiles bears on a bit.
#pragma once

#include "core/elementwise.h"
#include "cuda/launch.cuh"
#include "cuda/lines.cuh"
#include "cuda/tree_sum.cuh"
#include "ops/statistics/sums_cuda.h"

namespace planq::cuda::sums {

using math::Compute;
using std::int64_t;

constexpr int kWarps = kMeasureThreads / kWarp;
static_assert(kWarps == kRoundLeaves);
// The most rounds of a tile: a warp then joins all of its leaves at once.
constexpr int kMostRounds = kWarp / kWarps;

// What is measured of an element, and how two measures become one.
template <Measure kMeasure>
struct Measuring {
  template <class C>
  __device__ __forceinline__ C term(C x) const {
    if constexpr (kMeasure == Measure::SquareSum)
      return x * x;
    else
      return math::bit_cast<C>(math::magnitude_bits(x));
  }
  // A NaN is above infinity.
  template <class C>
  __device__ __forceinline__ C operator()(C a, C b) const {
    if constexpr (kMeasure == Measure::LargestMagnitude)
      return math::magnitude_bits(a) > math::magnitude_bits(b) ? a : b;
    else
      return a + b;
  }
};

template <class C>
struct MeasureResult {
  C* to;  // null: the measure goes on to the tiles
  bool takes_root;

  __device__ __forceinline__ void store(C measured) const {
    store_single(to, stored_measure(takes_root ? math::root(measured) : measured));
  }
};

template <class T>
struct MeasureArgs {
  const T* input;
  Compute<T>* tiles;
  MeasureResult<Compute<T>> result;
  ElementLayout layout;
  LineDivider rows;  // by the length of a row
  int64_t elements, tile_count;
  int rounds;
};

// --- Elements ----------------------------------------------------------------------------------

// Neighbours from element `at` on, of consecutive elements that begin with a vector; 0 behind the
// last.
template <class T>
__device__ __forceinline__ uint4 flat_elements(const MeasureArgs<T>& args, int64_t at) {
  T each[kPerVector<T>] = {};
  if (at + kPerVector<T> <= args.elements) return load_once(args.input + at);
#pragma unroll
  for (int i = 0; i < kPerVector<T>; ++i)
    if (at + i < args.elements) each[i] = load_single(args.input + at + i);
  uint4 vector;
  memcpy(&vector, each, sizeof vector);
  return vector;
}

// The same of rows that are anywhere.
template <class T>
__device__ __forceinline__ uint4 row_elements(const MeasureArgs<T>& args, int64_t at) {
  T each[kPerVector<T>] = {};
  if (at < args.elements) {
    int64_t row = args.rows.quotient(at), column = at - row * args.layout.length;
    const T* from = args.input + args.layout.rows.offsets(row).at[0];
    if (column + kPerVector<T> <= args.layout.length) {
      from += column;
      return misalignment<kVectorBytes>(from) == 0 ? load_once(from)
                                                   : UnalignedVector::elements(from);
    }
#pragma unroll
    for (int i = 0; i < kPerVector<T>; ++i) {
      if (at + i >= args.elements) break;
      each[i] = load_single(from + column);
      if (++column < args.layout.length) continue;
      column = 0;
      if (at + i + 1 < args.elements) from = args.input + args.layout.rows.offsets(++row).at[0];
    }
  }
  uint4 vector;
  memcpy(&vector, each, sizeof vector);
  return vector;
}

// --- Leaves and tiles --------------------------------------------------------------------------

// The leaf's loads are all under way before the first of them is looked at.
template <Measure kMeasure, bool kFlat, class T>
__device__ __forceinline__ Compute<T> measure_leaf(const MeasureArgs<T>& args, int64_t leaf) {
  constexpr int kEach = kPerVector<T>;
  uint4 vectors[kLeafGroups<kEach>];
#pragma unroll
  for (int g = 0; g < kLeafGroups<kEach>; ++g) {
    const int64_t at = leaf * math::kSumLeaf + leaf_place<kEach>(g);
    vectors[g] = kFlat ? flat_elements(args, at) : row_elements(args, at);
  }
  const Measuring<kMeasure> measuring;
  const auto terms = [&](int group, Compute<T>(&to)[kEach]) {
    T x[kEach];
    memcpy(x, vectors + group, sizeof x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) to[i] = measuring.term(math::widen(x[i]));
  };
  return join_leaf<kEach, Compute<T>>(terms, measuring);
}

template <Measure kMeasure, bool kFlat, class T>
__global__ void __launch_bounds__(kMeasureThreads)
    measure_tiles(const __grid_constant__ MeasureArgs<T> args) {
  using C = Compute<T>;
  __shared__ C leaves[kMostRounds * kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, count = args.rounds * kWarps;
  let_dependents_start();
#pragma unroll 1
  for (int64_t tile = blockIdx.x; tile < args.tile_count; tile += gridDim.x) {
#pragma unroll 1
    for (int own = warp; own < count; own += kWarps) {
      const int64_t leaf = tile * count + own;
      C measured{0};
      if (leaf * math::kSumLeaf < args.elements)
        measured = measure_leaf<kMeasure, kFlat>(args, leaf);
      if (lane == 0) leaves[own] = measured;
    }
    __syncthreads();
    if (warp == 0) {
      const C measured = join_lanes(lane < count ? leaves[lane] : C{0}, Measuring<kMeasure>{});
      if (lane == 0 && args.result.to)
        args.result.store(measured);
      else if (lane == 0)
        store_single(args.tiles + tile, measured);
    }
    __syncthreads();  // the leaves have been read
  }
}

// --- Joining tiles, by one block ---------------------------------------------------------------

constexpr int kJoinThreads = 512, kJoinWarps = kJoinThreads / kWarp;
// Tiles that the block joins at a time.
constexpr int64_t kJoined = int64_t{kJoinWarps} * math::kSumLeaf;

template <class C>
struct JoinArgs {
  const C* tiles;
  MeasureResult<C> result;
  int64_t count;
};

template <class Join, class C>
__device__ __forceinline__ C join_tiles_of_leaf(const C* tiles, int64_t count, const Join& join) {
  constexpr int kEach = kPerVector<C>;
  uint4 vectors[kLeafGroups<kEach>];
#pragma unroll
  for (int g = 0; g < kLeafGroups<kEach>; ++g) {
    const int at = leaf_place<kEach>(g);
    C each[kEach] = {};
    if (at + kEach <= count) {
      vectors[g] = load_once(tiles + at);
      continue;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (at + i < count) each[i] = load_single(tiles + at + i);
    memcpy(vectors + g, each, sizeof each);
  }
  const auto terms = [&](int group, C(&to)[kEach]) { memcpy(to, vectors + group, sizeof to); };
  return join_leaf<kEach, C>(terms, join);
}

template <Measure kMeasure, class C>
__global__ void __launch_bounds__(kJoinThreads)
    join_tiles(const __grid_constant__ JoinArgs<C> args) {
  __shared__ C leaves[kJoinWarps];
  const Measuring<kMeasure> join;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Subtrees<C> runs;
  C joined{0};
  wait_for_previous();
#pragma unroll 1
  for (int64_t first = 0; first < args.count; first += kJoined) {
    const int64_t own = first + int64_t{warp} * math::kSumLeaf;
    C measured{0};
    if (own < args.count) measured = join_tiles_of_leaf(args.tiles + own, args.count - own, join);
    if (lane == 0) leaves[warp] = measured;
    __syncthreads();
    joined = join_lanes(lane < kJoinWarps ? leaves[lane] : C{0}, join);
    __syncthreads();  // the leaves have been read
    joined = runs.take(joined, first + kJoined >= args.count, join);
  }
  if (threadIdx.x == 0) args.result.store(joined);
}

}  // namespace planq::cuda::sums
