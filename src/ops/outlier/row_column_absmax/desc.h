// row_column_absmax: the largest magnitude of every row and of every column of a matrix, without
// outliers, and the number of outliers in each tile of a row.
#pragma once

#include <string_view>

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/outlier/magnitudes.h"

namespace planq::row_column_absmax {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  double threshold = 0;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, threshold),
};

// Positions in Operands.
enum Operand : int { kInput, kRowAbsmax, kColumnAbsmax, kTileCount };
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", "shape"},
              {"row_absmax", Role::Output, DType::Float32, leading("shape")},
              {"column_absmax", Role::Output, DType::Float32, last_of("shape")},
              {"tile_count", Role::Output, DType::Int32,
               axes(leading("shape"), groups_of(last_of("shape"), outlier::kTileColumns))}});

// Both backends promise the same.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::None,
    .accumulator = DType::Float32,
    .rounding = Rounding::None,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = "maxima and counts of integers, exact in any order; nothing is rounded"};

template <DType kElement>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kElement, descriptor.as<Fields>().input_dtype);
}

}  // namespace planq::row_column_absmax
