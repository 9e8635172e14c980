// A product y = a w^T, as plain data: what kernels of either backend are given, whichever operator
// it belongs to. Of codes, acc[m, n] is the sum over k of a[m, k] w[n, k] in int32, modulo 2^32, so
// every order of summation, split and tile gives the same bits. Of floating numbers, the sum is in
// float32 and its order has a name: see math/tensor_core.h.
#pragma once

#include <cstdint>

#include "core/index_space.h"
#include "core/registry.h"
#include "ops/linear/epilogue.h"

namespace planq::linear {

struct WeightCodes;  // see weight_only/codes.h

// One side of a product; what is said of codes is true of floating numbers. Code (row, term) is
// number `row * row_stride + term * term_stride` of `data`; of two 4-bit codes in a byte the first
// is the low nibble. Strides count codes: those of 4-bit codes along whatever is not packed are
// even. An axis of one has a stride of 0. Where term_stride is not 1, the rows lie side by side:
// row_stride is 1, or 0 where there is one row.
struct GemmOperand {
  const std::uint8_t* data = nullptr;
  std::int64_t row_stride = 0;   // from a row (of m or n) to the next
  std::int64_t term_stride = 1;  // from a term (of k) to the next; 1 where nothing is transposed
  DType dtype = DType::Int8;     // an 8-bit or 4-bit integer, or a float of 8 to 32 bits
  // What the numbers are made from where memory holds codes of another kind; a host kernel's.
  const WeightCodes* codes = nullptr;

  PLANQ_HD bool transposed() const { return term_stride != 1; }
  // For checking and for edges; kernels have faster ways.
  PLANQ_HD std::int32_t code(std::int64_t row, std::int64_t term) const {
    return math::load_integer(data, row * row_stride + term * term_stride, dtype,
                              NibbleOrder::LowFirst);
  }
};

// Columns of the weights that share a scale where scales are those of blocks.
inline constexpr std::int64_t kBlockColumns = 128;

// Whose addresses a step along a batch moves.
enum Moved : int {
  kMovedInput,
  kMovedWeight,
  kMovedOutput,
  kMovedResidual,
  kMovedScale,
  kMovedZeroPoint,
  kMovedSum,
  kMovedOutlier,
  kMovedOperands
};

struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  GemmOperand input, weight;
  std::uint8_t* output = nullptr;  // row-major, columns next to one another
  std::int64_t output_row = 0;     // elements from a row to the next
  DType output_dtype = DType::Int32;
  bool has_scales = false;  // int32 and int8 outputs have no epilogue
  Epilogue epilogue;
  // Scales are those of blocks and join slices of k, instead of meeting their sum: there is one for
  // each slice of an input's row and one for each slice of kBlockColumns columns, next to one
  // another.
  bool joins_by_scales = false;
  std::int64_t weight_scale_row = 0;  // from a block of columns to the next
  // The sums of a tensor core go on from what the output holds, and stay there, in float32: one
  // chain that no slices cut, without an epilogue. A host kernel's.
  bool continues = false;
  // The products that are left once rows that lie evenly are one m: mostly one, of rank 0.
  // Strides count what the fields above count.
  IndexSpaceOf<kMovedOperands> batch;

  // Writes nothing at all.
  bool empty() const { return m == 0 || n == 0 || batch.size() == 0; }
  // The product with this index among the batch's, as one of its own.
  PLANQ_HD Gemm at(std::int64_t index) const;
};

namespace detail {

PLANQ_HD const void* moved(const void* from, std::int64_t bytes) {
  return from ? static_cast<const std::uint8_t*>(from) + bytes : nullptr;
}
// An element's bytes; device code has no table of formats.
PLANQ_HD std::int64_t element_bytes(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return 8;
    case DType::Float32:
    case DType::Int32:
      return 4;
    case DType::Float16:
    case DType::BFloat16:
      return 2;
    default:
      return 1;
  }
}
PLANQ_HD void move_operand(GemmOperand& operand, std::int64_t codes) {
  operand.data += is_four_bit(operand.dtype) ? codes / 2 : codes * element_bytes(operand.dtype);
}

}  // namespace detail

PLANQ_HD Gemm Gemm::at(std::int64_t index) const {
  Gemm one = *this;
  one.batch.rank = 0;
  const auto by = batch.offsets(index);
  detail::move_operand(one.input, by.at[kMovedInput]);
  detail::move_operand(one.weight, by.at[kMovedWeight]);
  one.output += by.at[kMovedOutput] * detail::element_bytes(output_dtype);
  Epilogue& e = one.epilogue;
  e.residual =
      detail::moved(e.residual, by.at[kMovedResidual] * detail::element_bytes(e.residual_dtype));
  e.input_scale =
      detail::moved(e.input_scale, by.at[kMovedScale] * detail::element_bytes(e.scale_dtype));
  if (e.input_zero_point) e.input_zero_point += by.at[kMovedZeroPoint];
  if (e.input_sum) e.input_sum += by.at[kMovedSum];
  e.outliers.values = detail::moved(e.outliers.values,
                                    by.at[kMovedOutlier] * detail::element_bytes(e.outliers.dtype));
  return one;
}

// --- From a descriptor and its operands ----------------------------------------------------------

// A side as a descriptor has it.
struct OperandField {
  const Shape& shape;  // (..., rows, terms), or (..., terms, rows)
  DType dtype;
  bool transposed = false;

  std::int64_t rows() const { return shape[shape.rank - (transposed ? 1 : 2)]; }
  std::int64_t terms() const { return shape[shape.rank - (transposed ? 2 : 1)]; }
};

// (..., m, n), with leading axes of 1 in either shape repeated for the other's.
Shape gemm_shape(const OperandField& input, const OperandField& weight);

// The operands of a call; null: there is none. Those by row have the input's shape without its last
// axis, or one element; scales of blocks have slices of k for it.
struct GemmViews {
  const OperandView *input = nullptr, *weight = nullptr, *output = nullptr;
  const OperandView *input_scale = nullptr, *weight_scale = nullptr;
  const OperandView *input_zero_point = nullptr, *weight_zero_point = nullptr;
  const OperandView *input_sum = nullptr, *weight_sum = nullptr;
  const OperandView *bias = nullptr, *residual = nullptr;
  const OperandView* outlier = nullptr;  // values in C: (..., m, places)
};

Gemm make_gemm(const OperandField& input, const OperandField& weight, const GemmViews& views,
               Convention convention = Convention::Planq);
// Of weights that are given back from codes, which have to outlive the product.
Gemm make_gemm(const OperandField& input, const OperandField& weight, const GemmViews& views,
               const WeightCodes* codes);

// Of some columns of a product whose weights no batch moves; the caller gives it these weights.
Gemm columns_of(const Gemm& gemm, std::int64_t first, std::int64_t count);

}  // namespace planq::linear
