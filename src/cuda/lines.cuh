// Reading lines, which are consecutive elements that may begin at any address: as aligned vectors
// and, where a line does not begin or end with one, as single elements at its edges. Teams of
// threads share the lines of a segment; a function of the caller gets each vector or element once.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/segments.h"
#include "cuda/divider.cuh"
#include "cuda/key_range.cuh"

namespace planq::cuda {

// Offsets of the elements in an IndexSpace whose common case needs no division.
__device__ __forceinline__ std::int64_t element_offset(const IndexSpace& space,
                                                       std::int64_t index) {
  if (space.rank == 0) return 0;
  if (space.rank == 1) return index * space.axes[0].stride[Segments::kElements];
  return space.offsets(index).at[Segments::kElements];
}

// index / divisor, by a multiplication where 32 bits number everything.
struct LineDivider {
  std::int64_t divisor = 1;
  Divider small;
  bool is_small = false;

  LineDivider() = default;
  LineDivider(std::int64_t divisor, std::int64_t most)
      : divisor(divisor), is_small(most <= kMaxIndex && divisor <= kMaxIndex) {
    if (is_small) small = Divider(static_cast<std::uint32_t>(divisor));
  }
  __device__ __forceinline__ std::int64_t quotient(std::int64_t index) const {
    return is_small ? small.quotient(static_cast<std::uint32_t>(index)) : index / divisor;
  }
};

// The lines of a segment, and how `parts` teams share them.
struct LineWalk {
  IndexSpace lines;
  std::int64_t line_count = 1, length = 1;
  std::int64_t parts = 1;
  // A line is read in `steps` of 2^width_log2 vectors, one a thread.
  int width_log2 = 0;
  LineDivider steps;
  // Lines too short for vectors are read element by element.
  bool is_short = false;
  LineDivider elements;  // of a line
};

// A line cut at the 16-byte boundaries: `head` single elements, whole vectors, `tail` single
// elements.
template <class In>
struct AlignedLine {
  const In* input;  // where the vectors begin
  std::int64_t vectors;
  int head, tail;

  __device__ __forceinline__ AlignedLine(const In* from, std::int64_t length) {
    constexpr unsigned kCount = kPerVector<In>;
    const unsigned past = misalignment<kVectorBytes>(from) / sizeof(In);
    const unsigned before = (kCount - past) % kCount;
    head = static_cast<int>(before < length ? before : length);
    vectors = static_cast<std::int64_t>(static_cast<std::uint64_t>(length - head) / kCount);
    tail = static_cast<int>(length - head) & (kCount - 1);
    input = from + head;
  }
  // The threads whose rank is below 2 * kPerVector have one single element each at most.
  __device__ __forceinline__ bool has_edge(int rank) const {
    return rank < kPerVector<In> ? rank < head
                                 : rank < 2 * kPerVector<In> && rank - kPerVector<In> < tail;
  }
  __device__ __forceinline__ const In* edge(int rank) const {
    return rank < kPerVector<In> ? input - head + rank
                                 : input + vectors * kPerVector<In> + (rank - kPerVector<In>);
  }
};

// How memory is read: once, or again by a later kernel.
struct ReadOnce {
  static __device__ __forceinline__ uint4 vector(const void* from) { return load_once(from); }
  template <class T>
  static __device__ __forceinline__ T single(const T* from) {
    return load_single(from);
  }
};
struct ReadAgain {
  static __device__ __forceinline__ uint4 vector(const void* from) { return load_kept(from); }
  template <class T>
  static __device__ __forceinline__ T single(const T* from) {
    return *from;
  }
};

// The vectors of thread `rank` of team `part`, kBatch at a time: visit(vectors, which exist).
template <class In, int kThreads, int kBatch, bool kAligned, class Read, class Visit>
__device__ __forceinline__ void each_vector(const LineWalk& walk, const In* input,
                                            std::int64_t part, int rank, const Visit& visit) {
  const int width = 1 << walk.width_log2, rows = kThreads >> walk.width_log2;
  const int lane = rank & (width - 1);
  const std::int64_t items = walk.line_count * walk.steps.divisor;
  const std::int64_t stride = walk.parts * rows;
#pragma unroll 1
  for (std::int64_t item = part * rows + (rank >> walk.width_log2); item < items;
       item += kBatch * stride) {
    uint4 v[kBatch];
    bool active[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int64_t own = item + k * stride;
      active[k] = own < items;
      if (!active[k]) continue;
      std::int64_t line = 0;
      if (walk.line_count > 1) line = walk.steps.divisor == 1 ? own : walk.steps.quotient(own);
      const std::int64_t vector = ((own - line * walk.steps.divisor) << walk.width_log2) + lane;
      const In* from = input + element_offset(walk.lines, line);
      if constexpr (kAligned) {
        active[k] = vector * kPerVector<In> < walk.length;
      } else {
        const AlignedLine<In> cut(from, walk.length);
        from = cut.input;
        active[k] = vector < cut.vectors;
      }
      if (active[k]) v[k] = Read::vector(from + vector * kPerVector<In>);
    }
    visit(v, active);
  }
}

// The single elements at the edges of lines.
template <class In, int kThreads, class Read, class Visit>
__device__ __forceinline__ void each_edge(const LineWalk& walk, const In* input, std::int64_t part,
                                          int rank, const Visit& visit) {
  constexpr int kEdges = 2 * kPerVector<In>;
#pragma unroll 1
  for (std::int64_t i = part * kThreads + rank; i < walk.line_count * kEdges;
       i += walk.parts * kThreads) {
    const AlignedLine<In> line(input + element_offset(walk.lines, i / kEdges), walk.length);
    const int own = static_cast<int>(i % kEdges);
    if (line.has_edge(own)) visit(Read::single(line.edge(own)));
  }
}

// The elements of lines too short for vectors.
template <class In, int kThreads, int kBatch, class Read, class Visit>
__device__ __forceinline__ void each_element(const LineWalk& walk, const In* input,
                                             std::int64_t part, int rank, const Visit& visit) {
  const std::int64_t count = walk.line_count * walk.length, stride = walk.parts * kThreads;
#pragma unroll 1
  for (std::int64_t i = part * kThreads + rank; i < count; i += kBatch * stride) {
    In x[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int64_t own = i + k * stride;
      if (own >= count) continue;
      const std::int64_t line = walk.elements.quotient(own);
      x[k] = Read::single(input + element_offset(walk.lines, line) + (own - line * walk.length));
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k)
      if (i + k * stride < count) visit(x[k]);
  }
}

// Lets teams of `threads` threads share lines. `aligned`: each begins and ends with a vector.
template <class In>
void share_lines(LineWalk& walk, std::int64_t threads, bool aligned) {
  const std::int64_t vectors = walk.length / kPerVector<In>;
  const std::int64_t width = std::min<std::int64_t>(
      threads, static_cast<std::int64_t>(
                   std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(vectors, 1)))));
  walk.width_log2 = std::countr_zero(static_cast<std::uint64_t>(width));
  const std::int64_t steps = std::max<std::int64_t>(1, (vectors + width - 1) / width);
  walk.steps = LineDivider(steps, walk.line_count * steps);
  walk.is_short = !aligned && walk.length < 2 * kPerVector<In>;
  walk.elements =
      LineDivider(std::max<std::int64_t>(walk.length, 1), walk.line_count * walk.length);
}

}  // namespace planq::cuda
