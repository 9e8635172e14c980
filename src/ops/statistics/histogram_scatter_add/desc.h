// histogram_scatter_add: numbers added to the bins of a histogram that two indices name, those of a
// bin in the order of math/tree_sum.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"

namespace planq::histogram_scatter_add {

struct Fields {
  Shape shape;  // of the histogram
  std::int64_t count = 0;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("histogram.shape"),
    PLANQ_FIELD(Fields, count).required(),
};

// Positions in Operands.
enum Operand : int { kHistogram, kIndex1, kIndex2, kSource, kOutside };
inline constexpr auto kOperands =
    operands(kFields, {{"histogram", Role::InOut, DType::Float32, "shape"},
                       {"index1", Role::Input, DType::Int32, "count"},
                       {"index2", Role::Input, DType::Int32, "count"},
                       {"source", Role::Input, DType::Float32, "count"},
                       {"outside", Role::Output, DType::Int64, 1}});

}  // namespace planq::histogram_scatter_add
