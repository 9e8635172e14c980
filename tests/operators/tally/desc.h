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

inline constexpr auto kOperands = operands(
    kFields,
    {tensor("rows", Role::Input, DType::Float32, "shape").optional(),
     tensor("copy", Role::Output, DType::Float32, "shape").optional(),
     scalar("negative", Role::Input, DType::Bool), scalar("count", Role::Output, DType::Int64),
     scalar("size", Role::Output, DType::Int64), scalar("found", Role::Output, DType::Bool)});

}  // namespace planq::tally
