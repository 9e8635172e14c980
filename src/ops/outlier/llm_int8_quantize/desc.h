// llm_int8_quantize: int8 codes of rows, and outliers apart. Columns that hold an outlier are
// listed; their codes are 0, and their values are stored beside the codes. This header has the
// operator's contract and the arithmetic that both backends share; docs/numerics/outlier.md has the
// formulas.
//
// Both backends first find every row's largest magnitude and the set of outlier columns as bits.
// Maxima and sets are the same in any order. Then they make the list, ascending, and then the
// codes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/index_space.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/outlier/absmax_codes.h"
#include "ops/outlier/coo.h"

namespace planq::llm_int8_quantize {

using outlier::Magnitude;
using std::int64_t;

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  double threshold = 6.0;
  int64_t capacity = 0;
  Quotient quotient = Quotient::Divide;
  NonFinite nonfinite = NonFinite::Propagate;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, threshold),
    PLANQ_FIELD(Fields, capacity).required(),
    PLANQ_FIELD(Fields, quotient),
    PLANQ_FIELD(Fields, nonfinite),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kScale, kIndex, kCount, kOutlier };
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", "shape"},
              {"output", Role::Output, DType::Int8, "shape"},
              {"scale", Role::Output, DType::Float32, leading("shape")},
              {"index", Role::Output, DType::Int32, "capacity"},
              {"count", Role::Output, DType::Int64, 1},
              {"outlier", Role::Output, "input_dtype", axes(leading("shape"), "capacity")}});

// The operands that have rows, and where the rows begin in them.
enum RowOperand : int { kRowInput, kRowOutput, kRowScale, kRowOutlier };
inline IndexSpace row_space(const Fields& f, const Operands& operands) {
  IndexSpace rows;
  for (int i = 0; i < f.shape.rank - 1; ++i) {
    Axis axis;
    axis.extent = f.shape[i];
    axis.stride = {operands[kInput].strides[i], operands[kOutput].strides[i],
                   operands[kScale].strides[i], operands[kOutlier].strides[i]};
    rows.append(axis);
  }
  rows.merge();
  return rows;
}

// A bit for each column, in words of 32.
inline constexpr int kWordColumns = 32;
inline int64_t column_words(const Shape& shape) {
  return (shape.last() + kWordColumns - 1) / kWordColumns;
}

// How elements are classified. Outliers are finite magnitudes of at least `least`. Everything from
// `least` on is left out of the row's largest magnitude. Under PROPAGATE, a NaN or an infinity
// makes that magnitude infinite.
template <class T>
struct ElementRule {
  Magnitude<T> least;
  bool propagate;

  explicit ElementRule(const Fields& f)
      : least(std::min(outlier::outlier_rule<T>(f.threshold).least, outlier::kInfinity<T>)),
        propagate(f.nonfinite == NonFinite::Propagate) {}
  PLANQ_HD bool is_outlier(Magnitude<T> own) const {
    return own >= least && own < outlier::kInfinity<T>;
  }
  PLANQ_HD bool gives_up(Magnitude<T> own) const {
    return propagate && own >= outlier::kInfinity<T>;
  }
};

template <class T>
PLANQ_HD math::SegmentParameters<float> row_parameters(const math::AffineSpec<float>& spec,
                                                       Magnitude<T> largest) {
  const bool special = largest >= outlier::kInfinity<T>;
  const float peak = math::widen(outlier::element_of<T>(largest));
  return math::segment_parameters(spec, math::Range<float>{0.0f, special ? 0.0f : peak, special});
}

inline math::AffineSpec<float> spec_of(const Fields& f) {
  math::AffineSpec<float> spec = outlier::code_spec(f.quotient);
  spec.nonfinite = f.nonfinite;
  return spec;
}

// The stored value of an element of a listed column.
template <class T>
PLANQ_HD T kept_value(T x, bool given_up) {
  constexpr Magnitude<T> kInfinity = outlier::kInfinity<T>;
  const Magnitude<T> own = outlier::magnitude_of(x);
  if (given_up || own > kInfinity) return outlier::element_of<T>(0);
  if (own < kInfinity) return x;
  const T largest = outlier::element_of<T>(static_cast<Magnitude<T>>(kInfinity - 1));
  const bool negative = math::widen(x) < 0;
  if constexpr (sizeof(T) == 2)
    return T{static_cast<Magnitude<T>>(largest.bits | (negative ? 0x8000u : 0u))};
  else
    return negative ? -largest : largest;
}

template <DType kIn>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kIn, descriptor.as<Fields>().input_dtype);
}

// What the kernels of both backends promise.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = std::string_view("exact integer maxima and sets of columns; an outlier in one row "
                              "takes its column's codes out of every row")};

}  // namespace planq::llm_int8_quantize
