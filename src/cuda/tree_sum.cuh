// The tree of math/tree_sum.h by threads. What is joined may be sums or, by another function of
// two, anything else whose join has the bits of either order of its operands.
#pragma once

#include <cstdint>

#include "cuda/memory_access.cuh"
#include "math/tree_sum.h"

namespace planq::cuda {

// Neighbours of `count`, a power of two, joined until one number is left.
template <int kCount, class C, class Join>
__device__ __forceinline__ C join_neighbours(C (&values)[kCount], const Join& join) {
  static_assert((kCount & (kCount - 1)) == 0);
#pragma unroll
  for (int step = 1; step < kCount; step *= 2)
#pragma unroll
    for (int i = 0; i < kCount; i += 2 * step) values[i] = join(values[i], values[i + step]);
  return values[0];
}

// The same across a warp, for every lane, or across each kLanes lanes.
template <int kLanes = kWarp, class C, class Join>
__device__ __forceinline__ C join_lanes(C value, const Join& join) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2)
    value = join(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

// A leaf by a warp, in groups of kEach neighbours a lane; every lane gets the result. terms(group,
// to) writes those of the calling lane; leaf_place() is where they begin.
template <int kEach>
inline constexpr int kLeafGroups = math::kSumLeaf / (kEach * kWarp);
template <int kEach>
__device__ __forceinline__ int leaf_place(int group) {
  return (group * kWarp + static_cast<int>(threadIdx.x) % kWarp) * kEach;
}
template <int kEach, class C, class Terms, class Join>
__device__ __forceinline__ C join_leaf(const Terms& terms, const Join& join) {
  C groups[kLeafGroups<kEach>];
#pragma unroll
  for (int g = 0; g < kLeafGroups<kEach>; ++g) {
    C own[kEach];
    terms(g, own);
    groups[g] = join_lanes(join_neighbours(own, join), join);
  }
  return join_neighbours(groups, join);
}

// Subtrees of one size that come one after another, joined as the tree has them.
template <class C>
class Subtrees {
 public:
  // `last`: no other one comes, and the answer is the tree of all. Before that it means nothing.
  template <class Join>
  __device__ __forceinline__ C take(C subtree, bool last, const Join& join) {
    int level = 0;
    for (; last ? taken_ >> level != 0 : (taken_ >> level & 1) != 0; ++level)
      if (taken_ >> level & 1) subtree = join(waiting_[level], subtree);
    if (!last) waiting_[level] = subtree;
    ++taken_;
    return subtree;
  }

 private:
  static constexpr int kLevels = 40;

  C waiting_[kLevels];  // of 2^level subtrees, each without its right neighbour
  std::int64_t taken_ = 0;
};

struct AddNeighbours {
  template <class C>
  __device__ __forceinline__ C operator()(C a, C b) const {
    return a + b;
  }
};

}  // namespace planq::cuda
