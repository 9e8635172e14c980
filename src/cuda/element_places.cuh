// Where the elements of a flat tensor lie on CUDA; see core/flat.h.
#pragma once

#include "core/index_space.h"

namespace planq::cuda {

// Where the elements of a tensor lie, by their numbers.
struct ElementPlaces {
  IndexSpaceOf<1> space;

  ElementPlaces() = default;
  ElementPlaces(const Shape& shape, const OperandView& view) {
    for (int axis = 0; axis < shape.rank; ++axis) {
      AxisOf<1> each;
      each.extent = shape[axis];
      each.stride[0] = axis == shape.rank - 1 ? 1 : view.strides[axis];
      space.append(each);
    }
    space.merge();
  }
  // Whether consecutive elements lie one after another.
  bool consecutive() const {
    return space.rank == 0 || (space.rank == 1 && space.axes[0].stride[0] == 1);
  }
  __device__ __forceinline__ std::int64_t operator[](std::int64_t index) const {
    if (space.rank <= 1) return space.rank == 0 ? index : index * space.axes[0].stride[0];
    return space.offsets(index).at[0];
  }
};

}  // namespace planq::cuda
