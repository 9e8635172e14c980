// From the sums of a block to its outputs. No include guard, like the other parts of float_loops.h.

namespace planq::host::PLANQ_LEVEL::floating {

// The scales that sums are multiplied with. 1, which changes nothing, where there are none, or
// where slices have had them.
inline void load_column_scales(const Gemm& p, const Block& b, float (&scales)[kPanelColumns]) {
  const Epilogue& e = p.epilogue;
  const bool each = e.weight_scale && !p.joins_by_scales;
  if (each && e.weight_step == 1)
    return load_numbers<float>(e.weight_scale, e.scale_dtype, b.column, b.columns, scales);
  const float scale = each ? math::load_scale<float>(e.weight_scale, 0, e.scale_dtype) : 1.0f;
  for (float& of_column : scales) of_column = scale;
}
inline float row_scale(const Gemm& p, std::int64_t row) {
  const Epilogue& e = p.epilogue;
  if (!e.input_scale || p.joins_by_scales) return 1.0f;
  return math::load_scale<float>(e.input_scale, row * e.input_scale_row, e.scale_dtype);
}

// The outputs of a block, through the epilogue.
template <class T>
void finish_block(const Gemm& p, const Block& b, const float* sums) {
  float values[kPanelColumns], scales[kPanelColumns], bias[kPanelColumns] = {};
  float residual[kPanelColumns] = {};
  const Epilogue& e = p.epilogue;
  load_column_scales(p, b, scales);
  if (e.bias) load_numbers<float>(e.bias, e.bias_dtype, b.column, b.columns, bias);
  for (std::int64_t i = 0; i < b.rows; ++i, sums += kPanelColumns) {
    const std::int64_t row = b.row + i;
    if (e.residual)
      load_numbers<float>(e.residual, e.residual_dtype, row * e.residual_row + b.column, b.columns,
                          residual);
    const float scale = row_scale(p, row);
    for (std::int64_t c = 0; c < b.columns; ++c)
      values[c] = linear::with_addends(sums[c] * scale * scales[c], bias[c], residual[c], e);
    narrow<T>(values, b.columns, reinterpret_cast<T*>(p.output) + row * p.output_row + b.column);
  }
}

inline void store_block(const Gemm& p, const Block& b, const float* sums) {
  switch (p.output_dtype) {
    case DType::Float16:
      return finish_block<math::Half>(p, b, sums);
    case DType::BFloat16:
      return finish_block<math::Bfloat16>(p, b, sums);
    default:
      return finish_block<float>(p, b, sums);
  }
}

// A chain that continues keeps its sums in the output: where those of a row are.
inline float* held_sums(const Gemm& p, const Block& b, std::int64_t row) {
  return reinterpret_cast<float*>(p.output) + (b.row + row) * p.output_row + b.column;
}
inline void load_sums(const Gemm& p, const Block& b, float* sums) {
  for (std::int64_t i = 0; i < b.rows; ++i)
    std::copy_n(held_sums(p, b, i), b.columns, sums + i * kPanelColumns);
}
inline void hold_sums(const Gemm& p, const Block& b, const float* sums) {
  for (std::int64_t i = 0; i < b.rows; ++i)
    std::copy_n(sums + i * kPanelColumns, b.columns, held_sums(p, b, i));
}

}  // namespace planq::host::PLANQ_LEVEL::floating
