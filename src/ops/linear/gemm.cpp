#include "ops/linear/gemm.h"

#include <algorithm>

namespace planq::linear {

Shape gemm_shape(const OperandField& input, const OperandField& weight) {
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

// The stride, in an operand, of an axis of the output of rank `rank`. The operand's axes are the
// output's last ones; 0 where it has no such axis, or is broadcast along it.
std::int64_t batch_stride(const OperandView* view, int axis, int rank) {
  if (!view) return 0;
  const int own = axis - rank + view->rank;
  return own < 0 || view->extents[own] == 1 ? 0 : view->strides[own];
}

// The same of an operand by row, which has all axes but the output's last.
std::int64_t row_stride(const OperandView* view, int axis, int rank) {
  return batch_stride(view, axis, rank - 1);
}

// The same of scales: by row, or with slices of k as their last axis.
std::int64_t scale_stride(const Gemm& gemm, const OperandView* view, int axis, int rank) {
  return gemm.joins_by_scales ? batch_stride(view, axis, rank) : row_stride(view, axis, rank);
}

// Codes in a stride, which counts bytes of packed codes.
std::int64_t codes_of(DType dtype, std::int64_t stride) {
  return is_four_bit(dtype) ? 2 * stride : stride;
}

// An operand with the strides of its last two axes.
GemmOperand make_operand(const OperandField& field, const OperandView& view) {
  const int last = field.shape.rank - 1;
  const std::int64_t outer =
      field.shape[last - 1] == 1 ? 0 : codes_of(field.dtype, view.strides[last - 1]);
  const std::int64_t inner = field.transposed && field.shape[last] == 1 ? 0 : 1;
  return {static_cast<const std::uint8_t*>(view.data), field.transposed ? inner : outer,
          field.transposed ? outer : inner, field.dtype};
}

void set_epilogue(Gemm& gemm, const GemmViews& v, Convention convention) {
  const auto dtype_of = [](const OperandView* view) { return view ? view->dtype : DType::Float32; };
  const auto integers = [](const OperandView* view) {
    return view ? static_cast<const std::int32_t*>(view->data) : nullptr;
  };
  const auto data = [](const OperandView* view) { return view ? view->data : nullptr; };
  Epilogue& e = gemm.epilogue;
  e.convention = convention;
  e.scale_dtype = dtype_of(v.weight_scale);
  e.bias_dtype = dtype_of(v.bias);
  e.residual_dtype = dtype_of(v.residual);
  e.terms = static_cast<std::int32_t>(gemm.k);
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

// Makes the innermost axis of the batch m, after axes with fitting strides were merged. So rows of
// several leading axes become those of one gemm, if all share the weights. Rows of a transposed
// input have to be next to one another.
void take_rows(Gemm& gemm) {
  auto& space = gemm.batch;
  space.merge();
  gemm.m = 1;
  if (space.rank == 0) return;
  const auto& rows = space.axes[space.rank - 1];
  if (rows.stride[kMovedWeight] != 0) return;
  if (gemm.input.transposed() && rows.stride[kMovedInput] != 1) return;
  space.rank -= 1;
  gemm.m = rows.extent;
  gemm.input.row_stride = rows.stride[kMovedInput];
  gemm.output_row = rows.stride[kMovedOutput];
  Epilogue& e = gemm.epilogue;
  e.residual_row = rows.stride[kMovedResidual];
  e.input_scale_row = rows.stride[kMovedScale];
  e.input_zero_point_row = rows.stride[kMovedZeroPoint];
  e.input_sum_row = rows.stride[kMovedSum];
  e.outliers.row = rows.stride[kMovedOutlier];
}

}  // namespace

Gemm make_gemm(const OperandField& input, const OperandField& weight, const GemmViews& v,
               Convention convention) {
  Gemm gemm;
  gemm.n = weight.rows();
  gemm.k = input.terms();
  gemm.input = make_operand(input, *v.input);
  gemm.weight = make_operand(weight, *v.weight);
  gemm.output = static_cast<std::uint8_t*>(v.output->data);
  gemm.output_dtype = v.output->dtype;
  gemm.has_scales = v.input_scale != nullptr;
  gemm.joins_by_scales = v.input_scale && v.input_scale->rank == input.shape.rank;
  if (gemm.joins_by_scales && v.weight_scale) gemm.weight_scale_row = v.weight_scale->strides[0];
  set_epilogue(gemm, v, convention);
  const Shape shape = gemm_shape(input, weight);
  for (int axis = 0; axis < shape.rank - 1; ++axis) {
    const bool is_row = axis == shape.rank - 2;
    AxisOf<kMovedOperands> step;
    step.extent = shape[axis];
    step.stride = {is_row ? gemm.input.row_stride
                          : codes_of(input.dtype, batch_stride(v.input, axis, shape.rank)),
                   is_row ? 0 : codes_of(weight.dtype, batch_stride(v.weight, axis, shape.rank)),
                   batch_stride(v.output, axis, shape.rank),
                   batch_stride(v.residual, axis, shape.rank),
                   scale_stride(gemm, v.input_scale, axis, shape.rank),
                   row_stride(v.input_zero_point, axis, shape.rank),
                   row_stride(v.input_sum, axis, shape.rank),
                   batch_stride(v.outlier, axis, shape.rank)};
    gemm.batch.append(step);
  }
  take_rows(gemm);
  return gemm;
}

Gemm make_gemm(const OperandField& input, const OperandField& weight, const GemmViews& v,
               const WeightCodes* codes) {
  Gemm gemm = make_gemm(input, weight, v);
  gemm.weight = {.dtype = weight.dtype, .codes = codes};
  return gemm;
}

Gemm rows_of(const Gemm& gemm, std::int64_t first, std::int64_t count) {
  Gemm some = gemm;
  some.m = count;
  detail::move_operand(some.input, first * gemm.input.row_stride);
  some.output += first * gemm.output_row * detail::element_bytes(gemm.output_dtype);
  Epilogue& e = some.epilogue;
  const auto moved = [first](const void* from, std::int64_t row, DType dtype) {
    return detail::moved(from, first * row * detail::element_bytes(dtype));
  };
  e.residual = moved(e.residual, e.residual_row, e.residual_dtype);
  e.input_scale = moved(e.input_scale, e.input_scale_row, e.scale_dtype);
  if (e.input_zero_point) e.input_zero_point += first * e.input_zero_point_row;
  if (e.input_sum) e.input_sum += first * e.input_sum_row;
  return some;
}

Gemm columns_of(const Gemm& gemm, std::int64_t first, std::int64_t count) {
  const auto moved = [first](const void* from, DType dtype) {
    return detail::moved(from, first * detail::element_bytes(dtype));
  };
  Gemm some = gemm;
  some.n = count;
  some.weight = {};
  some.output += first * detail::element_bytes(gemm.output_dtype);
  Epilogue& e = some.epilogue;
  if (e.weight_step != 0) e.weight_scale = moved(e.weight_scale, e.scale_dtype);
  e.bias = moved(e.bias, e.bias_dtype);
  e.residual = moved(e.residual, e.residual_dtype);
  return some;
}

}  // namespace planq::linear
