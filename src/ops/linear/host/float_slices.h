// Sums of a block of a gemm in the order of TensorSm90: slices of k, one after another. No include
// guard, like the other parts of float_loops.h.

namespace planq::host::PLANQ_LEVEL::floating {

// The scales of a slice of some rows, where blocks have scales. All columns of a panel are in one
// block.
inline void scales_of_slice(const Gemm& p, std::int64_t row, int rows, std::int64_t column,
                            std::int64_t slice, float* scales) {
  const Epilogue& e = p.epilogue;
  const float of_weight = static_cast<const float*>(
      e.weight_scale)[column / linear::kBlockColumns * p.weight_scale_row + slice];
  const float* const of_input = static_cast<const float*>(e.input_scale) + slice;
  for (int r = 0; r < rows; ++r) scales[r] = of_input[(row + r) * e.input_scale_row] * of_weight;
}

// Not inlined: its arrays would be on the stack beside those of the other body.
template <class Core>
[[gnu::noinline]] void sums_by_tensor_core(const Gemm& p, const Block& b, float* sums) {
  static_assert(linear::kBlockColumns % kPanelColumns == 0);
  WidePanel panel;
  WideRows rows;
  float scales[kWideRows];
  const ChainArgs args{format_of(p.input.dtype).smallest_exponent(),
                       format_of(p.weight.dtype).smallest_exponent(), p.continues};
  for (std::int64_t term = 0; term < p.k; term += kPanelTerms) {
    const std::int64_t terms = std::min<std::int64_t>(kPanelTerms, p.k - term);
    widen_panel(p.weight, b.column, b.columns, term, terms, panel);
    for (std::int64_t row = 0; row < b.rows; row += kWideRows) {
      const int count = static_cast<int>(std::min<std::int64_t>(kWideRows, b.rows - row));
      widen_rows(p.input, b.row + row, count, term, terms, rows);
      if (p.joins_by_scales)
        scales_of_slice(p, b.row + row, count, b.column, term / kPanelTerms, scales);
      const JoinSlices join{p.joins_by_scales ? scales : nullptr, p.continues};
      for (int i = 0; i < count; i += kTogether)
        add_chains<Core>(std::min(kTogether, count - i), args, rows, i, panel, 0,
                         static_cast<int>(terms), join, sums + (row + i) * kPanelColumns);
    }
  }
}

}  // namespace planq::host::PLANQ_LEVEL::floating
