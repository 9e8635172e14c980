// The epilogue of a gemm: from its int32 sums, by zero points, scales, a bias, a residual and one
// rounding, to outputs. Scalar functions that both backends call; docs/numerics/linear.md has the
// formulas.
#pragma once

#include "ops/affine/affine.h"

namespace planq::linear {

// 1/127^2 as bitsandbytes rounds it: the bits 0x38820610.
inline constexpr float kBitsandbytesFactor = 0x1.040c2p-14f;

// The listed columns of the input, whose values are floating numbers beside the codes. For each,
// one after another, value times the weight's code is added to a sum that already has its row's
// scale. Kernels are given either the weight's codes at the listed columns with the values in the
// compute type, or the list with the operand's values.
struct Outliers {
  const void* values = nullptr;  // by row and place in the list; null: no column is listed
  DType dtype = DType::Float32;  // of the values
  std::int64_t row = 0;          // from a row's values to the next, in elements
  const std::int32_t* index = nullptr;
  const std::int8_t* codes = nullptr;  // the weight's, by place in the list and output column
  std::int64_t pitch = 0;              // from a place's codes to the next
  const std::int64_t* count = nullptr;
  std::int64_t capacity = 0;

  // Entries of the list: what a GPU counted may be more than it holds.
  PLANQ_HD std::int64_t listed() const {
    return *count < 0 ? 0 : *count < capacity ? *count : capacity;
  }
};

// The operands of an epilogue, as plain data; null: there is none. Strides count elements; 0: one
// number for all.
struct Epilogue {
  Convention convention = Convention::Planq;
  DType scale_dtype = DType::Float32, bias_dtype = DType::Float32, residual_dtype = DType::Float32;
  std::int32_t terms = 0;  // K
  // By row.
  const void* input_scale = nullptr;
  const std::int32_t* input_zero_point = nullptr;
  const std::int32_t* input_sum = nullptr;
  std::int64_t input_scale_row = 0, input_zero_point_row = 0, input_sum_row = 0;
  // By column, contiguous. `weight_step`: 1, or 0 where all columns share scale and zero point.
  const void* weight_scale = nullptr;
  const std::int32_t* weight_zero_point = nullptr;
  const std::int32_t* weight_sum = nullptr;
  const void* bias = nullptr;
  std::int64_t weight_step = 0;
  // By row and column.
  const void* residual = nullptr;
  std::int64_t residual_row = 0;
  Outliers outliers;
};

// What the outputs of a row share.
template <class C>
struct RowTerm {
  C scale;
  std::uint32_t zero_point, sum;
};

// What the outputs of a column share.
template <class C>
struct ColumnTerm {
  C scale, bias;
  std::uint32_t zero_point;
  std::uint32_t sum;  // of the codes over their zero point: sum w - K zw
};

template <class C>
PLANQ_HD RowTerm<C> row_term(const Epilogue& e, std::int64_t row) {
  RowTerm<C> term{math::load_scale<C>(e.input_scale, row * e.input_scale_row, e.scale_dtype), 0, 0};
  if (e.input_zero_point)
    term.zero_point = static_cast<std::uint32_t>(e.input_zero_point[row * e.input_zero_point_row]);
  if (e.input_sum) term.sum = static_cast<std::uint32_t>(e.input_sum[row * e.input_sum_row]);
  return term;
}

// From numbers that were loaded; 0 for an operand that there is none of.
template <class C>
PLANQ_HD ColumnTerm<C> column_term(const Epilogue& e, C scale, C bias, std::int32_t zero_point,
                                   std::int32_t sum) {
  const auto zero = static_cast<std::uint32_t>(zero_point);
  return {scale, bias, zero,
          static_cast<std::uint32_t>(sum) - static_cast<std::uint32_t>(e.terms) * zero};
}

template <class C>
PLANQ_HD ColumnTerm<C> column_term(const Epilogue& e, std::int64_t column) {
  const std::int64_t at = column * e.weight_step;
  return column_term<C>(e, math::load_scale<C>(e.weight_scale, at, e.scale_dtype),
                        e.bias ? math::load_scale<C>(e.bias, column, e.bias_dtype) : C{0},
                        e.weight_zero_point ? e.weight_zero_point[at] : 0,
                        e.weight_sum ? e.weight_sum[column] : 0);
}

// acc - za sum w - zw sum a + K za zw, modulo 2^32.
template <class C>
PLANQ_HD std::int32_t without_zero_points(std::int32_t acc, const RowTerm<C>& row,
                                          const ColumnTerm<C>& column) {
  const std::uint32_t shifted = row.zero_point * column.sum + column.zero_point * row.sum;
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(acc) - shifted);
}

// The sum times its scales, plus the bias where there is one, in the order of a convention. Each
// operation is one IEEE operation in C.
template <Convention kConvention, class C>
PLANQ_HD C scaled(std::int32_t sum, const RowTerm<C>& row, const ColumnTerm<C>& column,
                  bool has_bias) {
  const C t = static_cast<C>(sum);
  if constexpr (kConvention == Convention::BitsAndBytes) {
    // The bias of a column without one is +0.
    return math::fused(t * row.scale * column.scale, static_cast<C>(kBitsandbytesFactor),
                       column.bias);
  } else {
    const C y = kConvention == Convention::Baracuda ? row.scale * column.scale * t
                                                    : t * row.scale * column.scale;
    return has_bias ? y + column.bias : y;
  }
}

// An output before its rounding. `residual` is ignored where the epilogue has none.
template <Convention kConvention, class C>
PLANQ_HD C finish(std::int32_t acc, const RowTerm<C>& row, const ColumnTerm<C>& column,
                  const Epilogue& e, C residual) {
  const bool shifted = e.input_zero_point || e.weight_zero_point;
  const std::int32_t sum = shifted ? without_zero_points(acc, row, column) : acc;
  const C y = scaled<kConvention>(sum, row, column, e.bias != nullptr);
  return e.residual ? y + residual : y;
}

// The same with the convention that the epilogue names.
template <class C>
PLANQ_HD C finish(std::int32_t acc, const RowTerm<C>& row, const ColumnTerm<C>& column,
                  const Epilogue& e, C residual) {
  switch (e.convention) {
    case Convention::BitsAndBytes:
      return finish<Convention::BitsAndBytes>(acc, row, column, e, residual);
    case Convention::Baracuda:
      return finish<Convention::Baracuda>(acc, row, column, e, residual);
    default:
      return finish<Convention::Planq>(acc, row, column, e, residual);
  }
}

// A sum with its bias and its residual, where there are any.
template <class C>
PLANQ_HD C with_addends(C sum, C bias, C residual, const Epilogue& e) {
  const C shifted = e.bias ? sum + bias : sum;
  return e.residual ? shifted + residual : shifted;
}

// scaled() of a sum that already has its row's scale, and its outliers.
template <class C>
PLANQ_HD C scaled_listed(C sum, const ColumnTerm<C>& column, bool has_bias) {
  const C y = sum * column.scale;
  return has_bias ? y + column.bias : y;
}
// finish() of such a sum.
template <class C>
PLANQ_HD C finish_listed(C sum, const ColumnTerm<C>& column, const Epilogue& e, C residual) {
  return with_addends(sum * column.scale, column.bias, residual, e);
}

// The residual of an output, 0 where there is none.
template <class C>
PLANQ_HD C residual_at(const Epilogue& e, std::int64_t row, std::int64_t column) {
  if (!e.residual) return C{0};
  return math::load_scale<C>(e.residual, row * e.residual_row + column, e.residual_dtype);
}

// An output without an epilogue: the sum, or the nearest int8.
template <class T>
PLANQ_HD T integer_output(std::int32_t acc) {
  if constexpr (sizeof(T) == sizeof acc) return acc;
  const std::int32_t raised = acc < -128 ? -128 : acc;
  return static_cast<T>(raised > 127 ? 127 : raised);
}

}  // namespace planq::linear
