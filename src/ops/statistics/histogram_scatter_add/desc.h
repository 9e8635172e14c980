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
inline constexpr OperandInfo kOperands[] = {
    {"histogram", Role::InOut}, {"index1", Role::Input},   {"index2", Role::Input},
    {"source", Role::Input},    {"outside", Role::Output},
};

}  // namespace planq::histogram_scatter_add
