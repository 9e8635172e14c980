// The rows of blocks and of the numbers that they become, for both backends.
#pragma once

#include <cstdint>

#include "core/index_space.h"
#include "ops/gguf/gguf_dequantize/desc.h"

namespace planq::gguf_dequantize {

struct Rows {
  IndexSpaceOf<2> space;  // of the input, in bytes, and of the output, in elements
  std::int64_t blocks;    // of a row

  // Rows that lie one behind the other in both are one row.
  explicit Rows(const Call& call) : blocks(call.fields<Fields>().blocks_of_row()) {
    const Fields& f = call.fields<Fields>();
    for (int axis = 0; axis + 1 < f.shape.rank; ++axis) {
      const auto own = static_cast<std::size_t>(axis);
      space.append({f.shape[axis],
                    1,
                    0,
                    {call.operands[kInput].strides[own], call.operands[kOutput].strides[own]}});
    }
    space.merge();
    if (space.rank == 0) return;
    const AxisOf<2>& inner = space.axes[space.rank - 1];
    if (inner.stride[0] != blocks * gguf::bytes_of(f.type) || inner.stride[1] != f.shape.last())
      return;
    blocks *= inner.extent;
    space.rank -= 1;
  }
};

}  // namespace planq::gguf_dequantize
