// double_quantize: int8 codes of a matrix by the largest magnitude of each row, and codes by that
// of each column, both without the outliers, which go into a list of their own.
#pragma once

#include <string_view>

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/outlier/magnitudes.h"

namespace planq::double_quantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  double threshold = 0;
  std::int64_t capacity = 0;
  Quotient quotient = Quotient::Divide;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, threshold),
    PLANQ_FIELD(Fields, capacity),
    PLANQ_FIELD(Fields, quotient),
};

// Positions in Operands.
enum Operand : int {
  kInput,
  kRowAbsmax,
  kColumnAbsmax,
  kRowCodes,
  kColumnCodes,
  kRowIndex,
  kColumnIndex,
  kValue,
  kCount,
};
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "shape"},
                       {"row_absmax", Role::Output, DType::Float32, leading("shape")},
                       {"column_absmax", Role::Output, DType::Float32, last_of("shape")},
                       {"row_codes", Role::Output, DType::Int8, "shape"},
                       {"column_codes", Role::Output, DType::Int8, "shape"},
                       {"row_index", Role::Output, DType::Int32, "capacity"},
                       {"column_index", Role::Output, DType::Int32, "capacity"},
                       {"value", Role::Output, "input_dtype", "capacity"},
                       {"count", Role::Output, DType::Int64, 1}});

// Both backends promise the same.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = "exact integer maxima; IEEE quotients; outliers in places that sums of counts say"};

template <DType kElement>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kElement, descriptor.as<Fields>().input_dtype);
}

// Whether outliers are looked for at all.
inline bool finds_outliers(const Fields& f) { return f.threshold > 0; }

}  // namespace planq::double_quantize
