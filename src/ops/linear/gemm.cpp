#include "ops/linear/gemm.h"

#include <algorithm>

namespace planq::linear {

Shape product_shape(const FactorField& input, const FactorField& weight) {
  Shape shape;
  shape.rank = std::max(input.shape.rank, weight.shape.rank);
  for (int axis = 0; axis < shape.rank - 2; ++axis) {
    const int of_input = axis - shape.rank + input.shape.rank;
    const int of_weight = axis - shape.rank + weight.shape.rank;
    const std::int64_t extent = of_input < 0 ? 1 : input.shape[of_input];
    shape[axis] = of_weight < 0 || weight.shape[of_weight] == 1 ? extent : weight.shape[of_weight];
  }
  shape[shape.rank - 2] = input.rows();
  shape[shape.rank - 1] = weight.rows();
  return shape;
}

namespace {

// By how much a step along an axis of the output moves in an operand that has its last axes in
// common with it; 0 where the operand repeats.
std::int64_t batch_stride(const OperandView* view, int axis, int rank) {
  if (!view) return 0;
  const int own = axis - rank + view->rank;
  return own < 0 || view->extents[own] == 1 ? 0 : view->strides[own];
}

// The same of an operand by row, whose last axis is the output's last but one.
std::int64_t row_stride(const OperandView* view, int axis, int rank) {
  return batch_stride(view, axis, rank - 1);
}

// Of rows or of their slices, which have an axis of their own.
std::int64_t scale_stride(const Product& product, const OperandView* view, int axis, int rank) {
  return product.joins_by_scales ? batch_stride(view, axis, rank) : row_stride(view, axis, rank);
}

std::int64_t codes_of(DType dtype, std::int64_t stride) {
  return is_four_bit(dtype) ? 2 * stride : stride;
}

// A side with the strides of its two last axes.
Factor make_factor(const FactorField& field, const OperandView& view) {
  const int last = field.shape.rank - 1;
  const std::int64_t outer =
      field.shape[last - 1] == 1 ? 0 : codes_of(field.dtype, view.strides[last - 1]);
  const std::int64_t inner = field.transposed && field.shape[last] == 1 ? 0 : 1;
  return {static_cast<const std::uint8_t*>(view.data), field.transposed ? inner : outer,
          field.transposed ? outer : inner, field.dtype};
}

void set_epilogue(Product& product, const ProductViews& v, Convention convention) {
  const auto dtype_of = [](const OperandView* view) { return view ? view->dtype : DType::Float32; };
  const auto integers = [](const OperandView* view) {
    return view ? static_cast<const std::int32_t*>(view->data) : nullptr;
  };
  const auto data = [](const OperandView* view) { return view ? view->data : nullptr; };
  Epilogue& e = product.epilogue;
  e.convention = convention;
  e.scale_dtype = dtype_of(v.weight_scale);
  e.bias_dtype = dtype_of(v.bias);
  e.residual_dtype = dtype_of(v.residual);
  e.terms = static_cast<std::int32_t>(product.k);
  e.input_scale = data(v.input_scale);
  e.input_zero_point = integers(v.input_zero_point);
  e.input_sum = integers(v.input_sum);
  e.weight_scale = data(v.weight_scale);
  e.weight_zero_point = integers(v.weight_zero_point);
  e.weight_sum = integers(v.weight_sum);
  e.weight_step = v.weight_scale && v.weight_scale->extents[0] > 1 ? 1 : 0;
  e.bias = data(v.bias);
  e.residual = data(v.residual);
  e.outliers.values = data(v.outlier);
  e.outliers.dtype = dtype_of(v.outlier);
}

// Rows that every operand has evenly apart, under weights that are the same for all of them, are
// the rows of one product, whichever axes they come from; of transposed matrices, only those side
// by side.
void take_rows(Product& product) {
  auto& space = product.batch;
  space.merge();
  product.m = 1;
  if (space.rank == 0) return;
  const auto& rows = space.axes[space.rank - 1];
  if (rows.stride[kMovedWeight] != 0) return;
  if (product.input.transposed() && rows.stride[kMovedInput] != 1) return;
  space.rank -= 1;
  product.m = rows.extent;
  product.input.row_stride = rows.stride[kMovedInput];
  product.output_row = rows.stride[kMovedOutput];
  Epilogue& e = product.epilogue;
  e.residual_row = rows.stride[kMovedResidual];
  e.input_scale_row = rows.stride[kMovedScale];
  e.input_zero_point_row = rows.stride[kMovedZeroPoint];
  e.input_sum_row = rows.stride[kMovedSum];
  e.outliers.row = rows.stride[kMovedOutlier];
}

}  // namespace

Product make_product(const FactorField& input, const FactorField& weight, const ProductViews& v,
                     Convention convention) {
  Product product;
  product.n = weight.rows();
  product.k = input.terms();
  product.input = make_factor(input, *v.input);
  product.weight = make_factor(weight, *v.weight);
  product.output = static_cast<std::uint8_t*>(v.output->data);
  product.output_dtype = v.output->dtype;
  product.has_scales = v.input_scale != nullptr;
  product.joins_by_scales = v.weight_scale && v.weight_scale->rank == 2;
  if (product.joins_by_scales) product.weight_scale_row = v.weight_scale->strides[0];
  set_epilogue(product, v, convention);
  const Shape shape = product_shape(input, weight);
  for (int axis = 0; axis < shape.rank - 1; ++axis) {
    const bool is_row = axis == shape.rank - 2;
    AxisOf<kMovedOperands> step;
    step.extent = shape[axis];
    step.stride = {is_row ? product.input.row_stride
                          : codes_of(input.dtype, batch_stride(v.input, axis, shape.rank)),
                   is_row ? 0 : codes_of(weight.dtype, batch_stride(v.weight, axis, shape.rank)),
                   batch_stride(v.output, axis, shape.rank),
                   batch_stride(v.residual, axis, shape.rank),
                   scale_stride(product, v.input_scale, axis, shape.rank),
                   row_stride(v.input_zero_point, axis, shape.rank),
                   row_stride(v.input_sum, axis, shape.rank),
                   batch_stride(v.outlier, axis, shape.rank)};
    product.batch.append(step);
  }
  take_rows(product);
  return product;
}

Product make_product(const FactorField& input, const FactorField& weight, const ProductViews& v,
                     const WeightCodes* codes) {
  Product product = make_product(input, weight, v);
  product.weight = {.dtype = weight.dtype, .codes = codes};
  return product;
}

Product columns_of(const Product& product, std::int64_t first, std::int64_t count) {
  const auto moved = [first](const void* from, DType dtype) {
    return detail::moved(from, first * detail::element_bytes(dtype));
  };
  Product some = product;
  some.n = count;
  some.weight = {};
  some.output += first * detail::element_bytes(product.output_dtype);
  Epilogue& e = some.epilogue;
  if (e.weight_step != 0) e.weight_scale = moved(e.weight_scale, e.scale_dtype);
  e.bias = moved(e.bias, e.bias_dtype);
  e.residual = moved(e.residual, e.residual_dtype);
  return some;
}

}  // namespace planq::linear
