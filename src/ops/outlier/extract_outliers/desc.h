// extract_outliers: copies listed columns of a matrix in any layout. Only the device knows how many
// columns are listed.
#pragma once

#include <algorithm>

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/outlier/layouts.h"
#include "ops/outlier/vocabulary.h"

namespace planq::extract_outliers {

struct Fields {
  Shape shape;  // of the matrix
  DType dtype = DType::Int8;
  Layout layout = Layout::Row;
  std::int64_t capacity = 0;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required(),
    PLANQ_FIELD(Fields, dtype).from("input.dtype"),
    PLANQ_FIELD(Fields, layout),
    PLANQ_FIELD(Fields, capacity).required(),
};

// Positions in Operands.
enum Operand : int { kInput, kIndex, kCount, kOutput };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "dtype", outlier::buffer_shape("layout", "shape")},
                       {"index", Role::Input, DType::Int32, "capacity"},
                       {"count", Role::Input, DType::Int64, 1},
                       {"output", Role::Output, "dtype", axes(leading("shape"), "capacity")}});

inline constexpr DType kIntegers[] = {DType::Int8, DType::Int32};

inline Shape output_shape(const Fields& f) {
  Shape shape = f.shape;
  shape[shape.rank - 1] = f.capacity;
  return shape;
}

// What both backends read and write.
template <class E>
struct Extraction {
  outlier::MatrixLines matrix;
  IndexSpaceOf<1> output_rows;
  const E* input;
  const std::int32_t* index;
  const std::int64_t* count;
  E* output;
  std::int64_t rows, capacity;

  Extraction(const Fields& f, const Operands& operands)
      : matrix(outlier::lines_of(f.layout, outlier::MatrixShape(f.shape),
                                 outlier::buffer_shape(f.layout, f.shape), operands[kInput])),
        input(static_cast<const E*>(operands[kInput].data)),
        index(static_cast<const std::int32_t*>(operands[kIndex].data)),
        count(static_cast<const std::int64_t*>(operands[kCount].data)),
        output(static_cast<E*>(operands[kOutput].data)),
        rows(matrix.rows),
        capacity(f.capacity) {
    for (int i = 0; i + 1 < f.shape.rank; ++i)
      output_rows.append({.extent = f.shape[i], .stride = {operands[kOutput].strides[i]}});
    output_rows.merge();
  }

  // The listed column at a position; -1 if there is none, or the matrix does not have it.
  PLANQ_HD std::int64_t column(std::int64_t position) const {
    if (position >= *count) return -1;
    const std::int64_t named = index[position];
    return named >= 0 && named < matrix.columns ? named : -1;
  }
  PLANQ_HD E element(std::int64_t row, std::int64_t from) const {
    return from < 0 ? E{0} : input[matrix.offset(row, from)];
  }
};

// Both backends promise the same: nothing is computed.
inline constexpr Guarantee kGuarantee = {.determinism = Determinism::BitExact,
                                         .math = MathPrecision::None,
                                         .accumulator = DType::Int32,
                                         .rounding = Rounding::None,
                                         .max_ulp = 0,
                                         .error_bound = kNoErrorBound,
                                         .batch_invariant = true,
                                         .basis = "copies elements; no arithmetic"};

template <DType kDType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "dtype", kDType, descriptor.as<Fields>().dtype);
}

}  // namespace planq::extract_outliers
