// Elements of tensors of one shape on CUDA: a thread has neighbours of a row,
// as many as a vector holds, and loads and stores vectors where they are
// aligned.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/elementwise.h"
#include "core/registry.h"
#include "cuda/launch.cuh"
#include "cuda/lines.cuh"

namespace planq::memory {

using std::int64_t;

inline constexpr int kThreads = 256;
template <class Memory>
inline constexpr int kGroup = cuda::kVectorBytes / static_cast<int>(sizeof(Memory));

// The groups of a layout, numbered in the logical order of elements.
struct Groups {
  ElementLayout layout;
  cuda::LineDivider rows;  // by the groups of a row
  int64_t count = 0;
  int each = 1;

  Groups(const ElementLayout& own, int elements) : layout(own), each(elements) {
    const int64_t of_row = std::max<int64_t>(cuda::ceil_div(layout.length, each), 1);
    count = layout.length == 0 ? 0 : layout.rows.size() * of_row;
    rows = cuda::LineDivider(of_row, count);
  }
  cuda::Grid grid() const {
    return {.blocks = std::min(cuda::ceil_div(count, kThreads), cuda::kMaxIndex),
            .threads = dim3(kThreads)};
  }
};

struct Group {
  ElementOffsets at;  // of the first element
  int64_t first;      // its index among all
  int count;          // elements
};
template <int kEach>
__device__ __forceinline__ Group group_of(const Groups& groups, int64_t own) {
  const int64_t row = groups.rows.quotient(own);
  const int64_t column = (own - row * groups.rows.divisor) * kEach;
  const int64_t left = groups.layout.length - column;
  Group group = {groups.layout.rows.offsets(row), row * groups.layout.length + column,
                 static_cast<int>(left < kEach ? left : kEach)};
#pragma unroll
  for (int64_t& offset : group.at.at) offset += column;
  return group;
}

// Calls visit(group) for every group of this thread.
template <int kEach, class Visit>
__device__ __forceinline__ void each_group(const Groups& groups, const Visit& visit) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
#pragma unroll 1
  for (int64_t own = int64_t{blockIdx.x} * kThreads + threadIdx.x; own < groups.count;
       own += stride)
    visit(group_of<kEach>(groups, own));
}

template <class Memory>
__device__ __forceinline__ bool is_vector(const Memory* address, int count) {
  return count == kGroup<Memory> && cuda::misalignment<cuda::kVectorBytes>(address) == 0;
}

template <class Memory>
__device__ __forceinline__ void load_group(const Memory* from, int count,
                                           Memory (&to)[kGroup<Memory>]) {
  if (is_vector(from, count)) {
    const uint4 vector = cuda::load_once(from);
    memcpy(to, &vector, sizeof to);
    return;
  }
#pragma unroll
  for (int i = 0; i < kGroup<Memory>; ++i) to[i] = i < count ? cuda::load_single(from + i) : 0;
}

template <class Memory>
__device__ __forceinline__ void store_group(Memory* to, int count,
                                            const Memory (&from)[kGroup<Memory>]) {
  if (is_vector(to, count)) {
    uint4 vector;
    memcpy(&vector, from, sizeof vector);
    cuda::store_vector(to, vector);
    return;
  }
#pragma unroll
  for (int i = 0; i < kGroup<Memory>; ++i)
    if (i < count) cuda::store_single(to + i, from[i]);
}

// Nothing is launched where there are no elements.
template <class Args>
Status launch_groups(void (*kernel)(Args), const Args& args, Bound& bound) {
  return args.groups.count == 0 ? Status::success()
                                : cuda::launch(kernel, args.groups.grid(), args, bound);
}

}  // namespace planq::memory
