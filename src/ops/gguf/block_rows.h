// Rows of blocks and rows of the numbers that they stand for, as both lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/index_space.h"
#include "core/operands.h"
#include "ops/gguf/vocabulary.h"

namespace planq::gguf {

struct BlockRows {
  enum Offset : int { kBlocks, kNumbers };  // in bytes, and in elements

  IndexSpaceOf<2> space;
  std::int64_t blocks;  // of a row

  // Rows that lie one behind the other in both are one row, if they are `joined`. Others stay
  // alone: then `bytes` may be any operand that has something for each row.
  BlockRows(const Shape& shape, GgufType type, const OperandView& bytes, const OperandView& numbers,
            bool joined = true)
      : blocks(shape.last() / elements_of(type)) {
    for (int axis = 0; axis + 1 < shape.rank; ++axis) {
      const auto own = static_cast<std::size_t>(axis);
      space.append({shape[axis], 1, 0, {bytes.strides[own], numbers.strides[own]}});
    }
    space.merge();
    if (space.rank == 0 || !joined) return;
    const AxisOf<2>& inner = space.axes[space.rank - 1];
    if (inner.stride[kBlocks] != blocks * bytes_of(type) || inner.stride[kNumbers] != shape.last())
      return;
    blocks *= inner.extent;
    space.rank -= 1;
  }
};

}  // namespace planq::gguf
