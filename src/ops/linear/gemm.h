// A gemm, y = a w^T, as plain data: what kernels of both backends are given, whichever operator
// they belong to. Codes are summed in int32: acc[m, n] is the sum over k of a[m, k] w[n, k], modulo
// 2^32, so every order of summation, split and tile gives the same bits. Floating numbers are
// summed in float32, in an order that an Accumulation names: see math/tensor_core.h.
#pragma once

#include <cstdint>

#include "core/index_space.h"
#include "core/registry.h"
#include "ops/linear/epilogue.h"

namespace planq::linear {

struct WeightCodes;  // see weight_only/codes.h

// The input or the weights. What is said of codes is true of floating numbers, too. Code (row,
// term) is number `row * row_stride + term * term_stride` of `data`. Of two 4-bit codes in a byte,
// the first is the low nibble. Strides count codes; between lines of packed codes, they are even.
// An axis of extent 1 has a stride of 0. Where term_stride is not 1, the operand is transposed:
// row_stride is 1, or 0 where there is one row.
struct GemmOperand {
  const std::uint8_t* data = nullptr;
  std::int64_t row_stride = 0;   // from a row (of m or n) to the next
  std::int64_t term_stride = 1;  // from a term (of k) to the next; 1 where nothing is transposed
  DType dtype = DType::Int8;     // an 8-bit or 4-bit integer, or a float of 8 to 32 bits
  // What weights are dequantized from: then there is no `data`. Device code does not read it.
  const WeightCodes* codes = nullptr;

  PLANQ_HD bool transposed() const { return term_stride != 1; }
  // Slow: for tests, and for edges of tiles.
  PLANQ_HD std::int32_t code(std::int64_t row, std::int64_t term) const {
    return math::load_integer(data, row * row_stride + term * term_stride, dtype,
                              NibbleOrder::LowFirst);
  }
};

// Columns of the weights that share a scale where blocks have scales.
inline constexpr std::int64_t kBlockColumns = 128;

// The operands that may be others for each gemm of a batch. Strides are in this order.
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
  std::uint8_t* output = nullptr;  // row-major
  std::int64_t output_row = 0;     // elements from a row to the next
  DType output_dtype = DType::Int32;
  bool has_scales = false;  // int32 and int8 outputs have no epilogue
  Epilogue epilogue;
  // Blocks have scales: each slice of k is multiplied with its own before slices are added up. A
  // row of the input has a scale for each slice, and so have kBlockColumns columns of the weights.
  bool joins_by_scales = false;
  std::int64_t weight_scale_row = 0;  // from the scales of kBlockColumns columns to the next
  // TensorSm90's sums begin at what the output holds, and are stored there in float32, without an
  // epilogue. All of k is one chain instead of slices. Of host kernels alone.
  bool continues = false;
  // Leading axes that could not be made part of m. Mostly there are none: one gemm, of rank 0.
  // Strides count what those of the fields above count.
  IndexSpaceOf<kMovedOperands> batch;

  // Whether there is no output to write.
  bool empty() const { return m == 0 || n == 0 || batch.size() == 0; }
  // The gemm with this index in the batch, as one without a batch.
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

// An operand as a descriptor has it.
struct OperandField {
  const Shape& shape;  // (..., rows, terms), or (..., terms, rows)
  DType dtype;
  bool transposed = false;

  std::int64_t rows() const { return shape[shape.rank - (transposed ? 1 : 2)]; }
  std::int64_t terms() const { return shape[shape.rank - (transposed ? 2 : 1)]; }
};

// The output's shape, (..., m, n). Leading axes are broadcast: one of 1 takes the other's extent.
Shape gemm_shape(const OperandField& input, const OperandField& weight);

// The operands of a call; null: it has none. Those by row have the input's shape without its last
// axis, or one element. Where blocks have scales, input_scale's last axis is the slices of k.
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
// With weights that are dequantized from codes, which have to outlive the gemm.
Gemm make_gemm(const OperandField& input, const OperandField& weight, const GemmViews& views,
               const WeightCodes* codes);

// The gemm of some rows, of one without a batch, without outliers.
Gemm rows_of(const Gemm& gemm, std::int64_t first, std::int64_t count);
// The gemm of some columns, whose weights the caller has to set. The weights of `gemm` are the same
// for the whole batch.
Gemm columns_of(const Gemm& gemm, std::int64_t first, std::int64_t count);

}  // namespace planq::linear
