// The threads that share a row: those of a block, or of a cluster of blocks. Each warp has elements
// that follow one another, so what warps find can be put in the order of indices.
#pragma once

#include <cstdint>

#include "cuda/element.cuh"
#include "cuda/key_range.cuh"
#include "cuda/mbarrier.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/reduce.cuh"
#include "cuda/scan.cuh"
#include "ops/gather/leader.cuh"
#include "ops/gather/sample/rows.h"

namespace planq::sample {
namespace {

using cuda::Element;
using std::int32_t;
using std::int64_t;
using std::uint32_t;
using std::uint64_t;

constexpr int kThreads = 512, kWarps = kThreads / cuda::kWarp;
constexpr int kBlocks = 2, kMostBlocks = 8;  // of a multiprocessor, and of a row
constexpr int kEach = cuda::kPerVector<Element>;
constexpr int kBins = 256;
constexpr int kParts = 128;  // of a row, in equally many lanes

// A row as the vectors that it has a part in. The first and the last one may be edges.
struct Line {
  const Element* row;
  int32_t length, past, vectors;  // past: elements of the first vector before the row

  __device__ __forceinline__ Line(const Element* from, int64_t count)
      : row(from),
        length(static_cast<int32_t>(count)),
        past(cuda::misalignment<cuda::kVectorBytes>(from) / static_cast<int>(sizeof(Element))),
        vectors((past + length + kEach - 1) / kEach) {}

  __device__ __forceinline__ int32_t first(int32_t vector) const { return vector * kEach - past; }
  // What is no element of the row is -infinity: it weighs nothing.
  __device__ __forceinline__ uint4 load(int32_t vector) const {
    const int32_t at = first(vector);
    if (at >= 0 && at + kEach <= length) return cuda::load_kept(row + at);
    const Element none = math::narrow<Element>(-math::bit_cast<float>(0x7F800000u));
    uint4 edge = {};
#pragma unroll 1
    for (int32_t i = at; i < at + kEach; ++i) append(edge, i >= 0 && i < length ? row[i] : none);
    return edge;
  }

 private:
  // Moves a vector by an element, and puts one in its last place.
  static __device__ __forceinline__ void append(uint4& vector, Element x) {
    constexpr unsigned kBits = 8 * sizeof(Element);
    const uint32_t word = math::bit_cast<cuda::Word<sizeof(Element)>>(x);
    const auto moved = [](uint32_t low, uint32_t high) {
      return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> kBits);
    };
    vector = {moved(vector.x, vector.y), moved(vector.y, vector.z), moved(vector.z, vector.w),
              moved(vector.w, word)};
  }
};

struct Shared {
  // Of the row: where its operands are, and what it is drawn by.
  OffsetsOf<Rows::kCount> at;
  Settings settings;
  // What each block tells the others, twice: they may still read one while the next is written.
  alignas(16) uint64_t told[2][kBins];
  // Sums of bins by lanes, so that lanes that add to the same bin seldom wait for each other, in
  // two words: shared memory has no quick addition of 64 bits.
  static constexpr int kCopies = 16;
  uint32_t low[kBins][kCopies], high[kBins][kCopies];
  // Of the largest elements of as many parts of the row.
  int64_t keys[kParts];
  // What one thread finds for all.
  uint64_t before, own;
  int32_t place;
};

class Team {
 public:
  __device__ __forceinline__ Team(Shared& shared, int blocks)
      : shared_(shared), blocks_(blocks), rank_(blocks > 1 ? cuda::cluster_rank() : 0) {}

  // Of all warps, by the indices of their elements.
  __device__ __forceinline__ int warp() const {
    return rank_ * kWarps + static_cast<int>(threadIdx.x) / cuda::kWarp;
  }
  __device__ __forceinline__ bool is_first() const { return rank_ == 0 && threadIdx.x == 0; }

  // Calls visit(a vector, index of its first element) for the vectors of this thread, by rising
  // indices, of which kBatch are under way. All lanes of a warp make the same number of calls.
  template <int kBatch, class Visit>
  __device__ __forceinline__ void walk(const Line& line, const Visit& visit) const {
    const int32_t each = share(line), first = warp() * each;
    const int32_t last = min(first + each, line.vectors);
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll 1
    for (int32_t at = first; at < last; at += kBatch * cuda::kWarp) {
      uint4 vectors[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k)
        if (at + k * cuda::kWarp < last) vectors[k] = line.load(at + k * cuda::kWarp + lane);
#pragma unroll
      for (int k = 0; k < kBatch; ++k)
        if (at + k * cuda::kWarp < last) visit(vectors[k], line.first(at + k * cuda::kWarp + lane));
    }
  }

  // What this block tells: `told()[i]`, then tell(). After it, heard(rank, i) is what a block has
  // told, until the next but one tell().
  __device__ __forceinline__ uint64_t* told() { return shared_.told[turn_]; }
  __device__ __forceinline__ void tell() {
    heard_ = turn_;
    turn_ ^= 1;
#if PLANQ_HAS_CLUSTERS
    if (blocks_ > 1) return cuda::cluster_barrier();
#endif
    __syncthreads();
  }
  __device__ __forceinline__ uint64_t heard(int rank, int i) const {
    const uint64_t* const own = &shared_.told[heard_][i];
#if PLANQ_HAS_CLUSTERS
    if (rank != rank_) {
      const uint4 v = cuda::load_from_block(cuda::shared_address(own - i % 2), rank);
      return i % 2 == 0 ? uint64_t{v.y} << 32 | v.x : uint64_t{v.w} << 32 | v.z;
    }
#endif
    return *own;
  }
  __device__ __forceinline__ int blocks() const { return blocks_; }
  __device__ __forceinline__ Shared& shared() { return shared_; }

 private:
  // Vectors of a warp: so many for each lane.
  __device__ __forceinline__ int32_t share(const Line& line) const {
    const int32_t lanes = blocks_ * kThreads;
    return (line.vectors + lanes - 1) / lanes * cuda::kWarp;
  }

  Shared& shared_;
  int blocks_, rank_, turn_ = 0, heard_ = 0;
};

// Leaves the largest keys of all parts in shared memory. The key of the largest element, for all
// threads.
__device__ __forceinline__ int64_t largest_key(Team& team, const Line& line) {
  gather::Leader leader;
  team.walk<4>(line, [&](const uint4& vector, int32_t first) {
    leader.add(vector, static_cast<uint32_t>(first));
  });
  const int lanes = kThreads / kParts * team.blocks(), parts = kParts / team.blocks();
  const int64_t own = cuda::subwarp_max(leader.key(), lanes);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread % lanes == 0) team.told()[thread / lanes] = static_cast<uint64_t>(own);
  team.tell();
  int64_t* const keys = team.shared().keys;
  if (thread < kParts)
    keys[thread] = static_cast<int64_t>(team.heard(thread / parts, thread % parts));
  __syncthreads();
  int64_t key = gather::kNoKey;
#pragma unroll
  for (int i = 0; i < kParts; i += cuda::kWarp) key = max(key, keys[i + thread % cuda::kWarp]);
  return cuda::warp_max(key);
}

// An order that is not above that of the element of this rank, from 1 to kParts, but mostly is near
// it: that of the part whose largest element has this rank among those of all parts.
__device__ __forceinline__ int32_t bound_of_rank(Team& team, int rank) {
  const int thread = static_cast<int>(threadIdx.x);
  Shared& shared = team.shared();
  if (thread < kParts) {
    const int64_t own = shared.keys[thread];
    int above = 0;
#pragma unroll 8
    for (int i = 0; i < kParts; ++i)
      above += shared.keys[i] > own || (shared.keys[i] == own && i < thread) ? 1 : 0;
    if (above == rank - 1) shared.place = gather::order_in(own);
  }
  __syncthreads();
  return shared.place;
}

// What walks add up: 1, or the weight, of elements of a cut whose orders are in a range.
struct Measure {
  Drawer drawer;
  int32_t least, most;
  bool weighs;

  __device__ __forceinline__ uint64_t of(float x, int32_t index) const {
    const int32_t order = order_of(x);
    if (order < least || order > most) return 0;
    return weighs ? drawer.weight(x, order, index) : uint64_t{drawer.cut.has(order, index)};
  }
};

// The index, by rising ones, at which the running sum of a measure goes beyond `goal(sum of all)`:
// one thread of the team calls found(index).
template <class Goal, class Found>
__device__ __forceinline__ void locate(Team& team, const Line& line, const Measure& measure,
                                       const Goal& goal, const Found& found) {
  static_assert(kMostBlocks * kWarps <= kThreads);
  uint64_t sum = 0;
  team.walk<1>(line, [&](const uint4& vector, int32_t first) {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      sum += measure.of(cuda::element_of<Element>(vector, i), first + i);
  });
  const int thread = static_cast<int>(threadIdx.x);
  const uint64_t of_warp = cuda::scan_lanes(sum);
  if (thread % cuda::kWarp == cuda::kWarp - 1) team.told()[thread / cuda::kWarp] = of_warp;
  team.tell();
  const bool is_used = thread < team.blocks() * kWarps;
  const uint64_t own = is_used ? team.heard(thread / kWarps, thread % kWarps) : 0;
  const auto sums = cuda::sum_block<kThreads>(own);
  const uint64_t wanted = goal(sums.all);
  if (sums.before <= wanted && wanted < sums.before + own) {
    team.shared().place = thread;
    team.shared().before = sums.before;
  }
  __syncthreads();
  if (team.shared().place != team.warp()) return;
  uint64_t before = team.shared().before;
  team.walk<1>(line, [&](const uint4& vector, int32_t first) {
    uint64_t each[kEach], all = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      all += each[i] = measure.of(cuda::element_of<Element>(vector, i), first + i);
    const uint64_t with = before + cuda::scan_lanes(all);
    uint64_t running = with - all;
    before = __shfl_sync(cuda::kAllLanes, with, cuda::kWarp - 1);
    if (wanted < running || wanted >= with) return;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint64_t next = running + each[i];
      if (running <= wanted && wanted < next) found(first + i);
      running = next;
    }
  });
}

}  // namespace
}  // namespace planq::sample
