// Index spaces over strided operands. The last axis of a tensor is contiguous (stride 1) and is
// walked by the kernels themselves; the axes before it form an IndexSpace of "lines", whose offsets
// in every operand follow from strides that are known only at run.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/host_device.h"
#include "core/operands.h"

namespace planq {

// One axis of a space over kOperands operands: how far a step moves in each operand. A parameter
// that `divisor` consecutive indices share (a group along this axis) moves only every `divisor`
// steps; `grouped` marks such operands.
template <int kOperands>
struct AxisOf {
  std::int64_t extent = 1;
  std::int64_t divisor = 1;
  std::uint32_t grouped = 0;  // bit per operand
  std::array<std::int64_t, kOperands> stride{};
};

template <int kOperands>
struct OffsetsOf {
  std::int64_t at[kOperands];
};

template <int kOperands>
struct IndexSpaceOf {
  using Axis = AxisOf<kOperands>;
  using Offsets = OffsetsOf<kOperands>;

  std::int32_t rank = 0;
  Axis axes[kMaxRank];

  // Host only: appends an axis; axes of extent 1 vanish.
  void append(const Axis& axis) {
    if (axis.extent != 1) axes[rank++] = axis;
  }

  std::int64_t size() const {
    std::int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= axes[i].extent;
    return count;
  }

  // Joins neighbours that every operand walks with one stride, of any sign or 0, so that the common
  // contiguous case ends with rank 0 or 1 and an index needs no division. An operand that repeats
  // along one of them alone keeps them apart.
  void merge() {
    int kept = 0;
    for (int i = 1; i < rank; ++i) {
      Axis& outer = axes[kept];
      const Axis& inner = axes[i];
      bool joined = outer.divisor == 1 && inner.divisor == 1;
      for (int operand = 0; operand < kOperands; ++operand)
        joined = joined && outer.stride[operand] == inner.stride[operand] * inner.extent;
      if (joined) {
        const std::int64_t extent = outer.extent * inner.extent;
        outer = inner;
        outer.extent = extent;
      } else {
        axes[++kept] = inner;
      }
    }
    if (rank > 0) rank = kept + 1;
  }

  // Element offsets of the line with this index, row-major over the axes.
  PLANQ_HD Offsets offsets(std::int64_t index) const {
    Offsets result{};
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (int i = rank - 1; i >= 0; --i) {
      const Axis& axis = axes[i];
      std::int64_t position = index;
      if (i > 0) {
        index = position / axis.extent;
        position -= index * axis.extent;
      }
      const std::int64_t group = axis.grouped != 0 ? position / axis.divisor : position;
      for (int operand = 0; operand < kOperands; ++operand) {
        const bool grouped = axis.grouped >> operand & 1u;
        result.at[operand] += (grouped ? group : position) * axis.stride[operand];
      }
    }
    return result;
  }
};

template <int kOperands>
OffsetsOf<kOperands> operator+(OffsetsOf<kOperands> a, const OffsetsOf<kOperands>& b) {
  for (int operand = 0; operand < kOperands; ++operand) a.at[operand] += b.at[operand];
  return a;
}

// `count` steps along an axis that no operand has groups on.
template <int kOperands>
OffsetsOf<kOperands> moved(OffsetsOf<kOperands> at, const AxisOf<kOperands>& axis,
                           std::int64_t count) {
  for (int operand = 0; operand < kOperands; ++operand)
    at.at[operand] += count * axis.stride[operand];
  return at;
}

// Calls visit(offsets of the first, count, innermost axis) for the pieces of [first, last) that the
// innermost axis spans.
template <int kOperands, class Visit>
void for_each_piece(const IndexSpaceOf<kOperands>& space, std::int64_t first, std::int64_t last,
                    Visit&& visit) {
  const AxisOf<kOperands> none{};
  const AxisOf<kOperands>& inner = space.rank > 0 ? space.axes[space.rank - 1] : none;
  while (first < last) {
    const std::int64_t count = std::min(inner.extent - first % inner.extent, last - first);
    visit(space.offsets(first), count, inner);
    first += count;
  }
}

// What most kernels walk.
inline constexpr int kIndexSpaceOperands = 4;
using Axis = AxisOf<kIndexSpaceOperands>;
using Offsets = OffsetsOf<kIndexSpaceOperands>;
using IndexSpace = IndexSpaceOf<kIndexSpaceOperands>;

}  // namespace planq
