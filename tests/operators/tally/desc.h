// tally: how many elements of `rows` are below zero, or, without `negative`, are not; and whether
// there are any. Private to the tests: truth values as operands, by value and in memory, and rows
// that the caller may leave out.
//
//     count = number of such elements; found = count > 0; size = m n; copy = rows, or zeros
#pragma once

#include "core/descriptor.h"
#include "core/registry.h"

namespace planq::tally {

struct Fields {
  Shape shape;  // (m, n)
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("rows.shape"),
};

enum Index : int { kRows, kCopy, kNegative, kCount, kSize, kFound };

inline constexpr OperandInfo kOperands[] = {
    {"rows", Role::Input, Presence::Optional},
    {"copy", Role::Output, Presence::Optional},
    {"negative", Role::Input, Presence::Always, OperandKind::Scalar},
    {"count", Role::Output, Presence::Always, OperandKind::Scalar},
    {"size", Role::Output, Presence::Always, OperandKind::Scalar},
    {"found", Role::Output, Presence::Always, OperandKind::Scalar},
};

}  // namespace planq::tally
