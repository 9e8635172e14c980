// coo_to_csc: the entries of a row-major list column by column, and where each column begins.
#pragma once

#include <string_view>

#include "core/operands.h"
#include "core/registry.h"
#include "ops/outlier/coo.h"

namespace planq::coo_to_csc {

struct Fields {
  Shape shape;  // of the matrix
  std::int64_t capacity = 0;
  DType value_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required(),
    PLANQ_FIELD(Fields, capacity).required(),
    PLANQ_FIELD(Fields, value_dtype).required().from("value.dtype"),
};

// Positions in Operands.
enum Operand : int {
  kRowIndex,
  kColumnIndex,
  kValue,
  kCount,
  kPointer,
  kOutputRowIndex,
  kOutputValue,
};
inline constexpr auto kOperands =
    operands(kFields, {{"row_index", Role::Input, DType::Int32, "capacity"},
                       {"column_index", Role::Input, DType::Int32, "capacity"},
                       {"value", Role::Input, "value_dtype", "capacity"},
                       {"count", Role::Input, DType::Int64, 1},
                       {"pointer", Role::Output, DType::Int32, last_of("shape") + 1},
                       {"output_row_index", Role::Output, DType::Int32, "capacity"},
                       {"output_value", Role::Output, "value_dtype", "capacity"}});

// Both backends promise the same.
inline constexpr Guarantee kGuarantee = {.determinism = Determinism::BitExact,
                                         .math = MathPrecision::None,
                                         .accumulator = DType::Int32,
                                         .rounding = Rounding::None,
                                         .max_ulp = 0,
                                         .error_bound = kNoErrorBound,
                                         .batch_invariant = true,
                                         .basis = "a stable sort by integers; values are moved"};

inline Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }

// The key of positions without a valid entry: it comes after the keys of all columns.
inline std::uint32_t last_key(const Fields& f) {
  const std::int64_t columns = f.shape.last();
  return static_cast<std::uint32_t>(columns <= outlier::kMostIndices ? columns
                                                                     : outlier::kMostIndices + 1);
}
// The sort key of an entry: its column, or last_key for a column outside of the matrix.
PLANQ_HD std::uint32_t key_of(std::int32_t column, std::uint32_t last_key) {
  const auto key = static_cast<std::uint32_t>(column);
  return key < last_key ? key : last_key;
}

}  // namespace planq::coo_to_csc
