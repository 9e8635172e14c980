// The rows of an embedding, for both backends: where their indices and results lie.
#pragma once

#include <cstdint>

#include "core/index_space.h"
#include "core/scalar.h"
#include "ops/gather/embedding/desc.h"

namespace planq::embedding {

struct Rows {
  const void* indices;
  IndexSpaceOf<2> space;  // of the index and of the output
  std::int64_t table_rows;
  bool is_wide;  // indices of 64 bits

  explicit Rows(const Call& call)
      : indices(call.operands[kIndex].data),
        table_rows(call.fields<Fields>().table_rows),
        is_wide(call.fields<Fields>().index_dtype == DType::Int64) {
    const Fields& f = call.fields<Fields>();
    for (int axis = 0; axis + 1 < f.shape.rank; ++axis) {
      const auto own = static_cast<std::size_t>(axis);
      space.append({f.shape[axis],
                    1,
                    0,
                    {call.operands[kIndex].strides[own], call.operands[kOutput].strides[own]}});
    }
    space.merge();
  }
  std::int64_t size() const { return space.size(); }

  PLANQ_HD std::int64_t index(std::int64_t at) const {
    return is_wide ? static_cast<const std::int64_t*>(indices)[at]
                   : static_cast<const std::int32_t*>(indices)[at];
  }
  PLANQ_HD bool has(std::int64_t row) const {
    return static_cast<std::uint64_t>(row) < static_cast<std::uint64_t>(table_rows);
  }
};

}  // namespace planq::embedding
