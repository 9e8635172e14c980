// From the sums of a block to its outputs: the epilogue, one row at a time. No include guard, like
// the other parts of int8_loops.h.

namespace planq::host::PLANQ_LEVEL {

// What the epilogue needs of each column of a block: linear::ColumnTerm as arrays.
template <class C>
struct Columns {
  C scale[kColumns], bias[kColumns];
  std::uint32_t zero_point[kColumns], sum[kColumns];

  Columns(const Epilogue& e, std::int64_t first, std::int64_t count) {
    if (e.weight_step == 0)
      std::fill_n(scale, count, math::load_scale<C>(e.weight_scale, 0, e.scale_dtype));
    else
      load_numbers<C>(e.weight_scale, e.scale_dtype, first, count, scale);
    if (e.bias)
      load_numbers<C>(e.bias, e.bias_dtype, first, count, bias);
    else
      std::fill_n(bias, count, C{0});
    if (!e.weight_zero_point && !e.weight_sum) return;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto term = linear::column_term<C>(e, first + i);
      zero_point[i] = term.zero_point;
      sum[i] = term.sum;
    }
  }
};

// The outputs of a row before their rounding; `sums` are overwritten.
template <Convention kConvention, class C>
void finish_row(const Epilogue& e, const linear::RowTerm<C>& row, const Columns<C>& columns,
                std::int64_t count, std::int32_t* sums, const C* residual, C* values) {
  const bool has_bias = e.bias != nullptr;
  if (e.input_zero_point || e.weight_zero_point)
    for (std::int64_t i = 0; i < count; ++i)
      sums[i] = linear::without_zero_points<C>(sums[i], row,
                                               {C{0}, C{0}, columns.zero_point[i], columns.sum[i]});
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = linear::scaled<kConvention, C>(sums[i], row,
                                               {columns.scale[i], columns.bias[i], 0, 0}, has_bias);
  if (e.residual)
    for (std::int64_t i = 0; i < count; ++i) values[i] += residual[i];
}

// A row of outputs is prefetched so many rows before it is written.
constexpr std::int64_t kAhead = 8;

template <class T, Convention kConvention>
void finish_block(const Gemm& p, const Block& b, std::int32_t* sums) {
  using C = math::Compute<T>;
  C values[kColumns], residual[kColumns];
  const Epilogue& e = p.epilogue;
  const Columns<C> columns(e, b.column, b.columns);
  for (std::int64_t i = 0; i < b.rows; ++i) {
    const std::int64_t row = b.row + i;
    if (e.residual)
      load_numbers<C>(e.residual, e.residual_dtype, row * e.residual_row + b.column, b.columns,
                      residual);
    finish_row<kConvention, C>(e, linear::row_term<C>(e, row), columns, b.columns,
                               sums + i * b.pitch, residual, values);
    T* const to = reinterpret_cast<T*>(p.output) + row * p.output_row + b.column;
    for (std::int64_t at = 0; at < b.columns; at += 64 / sizeof(T))
      __builtin_prefetch(to + kAhead * p.output_row + at, 1);
    narrow<T>(values, b.columns, to);
  }
}

template <class T>
void finish_by_convention(const Gemm& p, const Block& b, std::int32_t* sums) {
  switch (p.epilogue.convention) {
    case Convention::BitsAndBytes:
      return finish_block<T, Convention::BitsAndBytes>(p, b, sums);
    case Convention::Baracuda:
      return finish_block<T, Convention::Baracuda>(p, b, sums);
    default:
      return finish_block<T, Convention::Planq>(p, b, sums);
  }
}

// Outputs without an epilogue.
template <class T>
void store_integers(const Gemm& p, const Block& b, const std::int32_t* sums) {
  for (std::int64_t row = 0; row < b.rows; ++row) {
    T* to = reinterpret_cast<T*>(p.output) + (b.row + row) * p.output_row + b.column;
    for (std::int64_t i = 0; i < b.columns; ++i)
      to[i] = linear::integer_output<T>(sums[row * b.pitch + i]);
  }
}

inline void store_block(const Gemm& p, const Block& b, std::int32_t* sums) {
  switch (p.output_dtype) {
    case DType::Int32:
      return store_integers<std::int32_t>(p, b, sums);
    case DType::Int8:
      return store_integers<std::int8_t>(p, b, sums);
    case DType::Float16:
      return finish_by_convention<math::Half>(p, b, sums);
    case DType::BFloat16:
      return finish_by_convention<math::Bfloat16>(p, b, sums);
    case DType::Float32:
      return finish_by_convention<float>(p, b, sums);
    default:
      return finish_by_convention<double>(p, b, sums);
  }
}

}  // namespace planq::host::PLANQ_LEVEL
