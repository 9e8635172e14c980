// The rows of argmax, for both backends: where they and their results lie.
#pragma once

#include <cstdint>

#include "core/index_space.h"
#include "ops/gather/argmax/desc.h"
#include "ops/gather/order.h"

namespace planq::argmax {

struct Rows {
  IndexSpaceOf<2> space;  // of input and output
  std::int64_t length;
  gather::Indices output;

  explicit Rows(const Call& call)
      : length(call.fields<Fields>().shape.last()),
        output(call.operands[kOutput], call.fields<Fields>().output_dtype) {
    const Shape& shape = call.fields<Fields>().shape;
    for (int axis = 0; axis + 1 < shape.rank; ++axis) {
      const auto own = static_cast<std::size_t>(axis);
      space.append({shape[axis],
                    1,
                    0,
                    {call.operands[kInput].strides[own], call.operands[kOutput].strides[own]}});
    }
    space.merge();
  }
  std::int64_t size() const { return space.size(); }

  PLANQ_HD void store(std::int64_t at, std::int64_t key) const {
    output.store(at, gather::index_of(key));
  }
};

}  // namespace planq::argmax
