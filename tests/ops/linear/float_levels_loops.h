// Chains of steps for one instruction set, from accumulators that are given: what no operator
// shows.

namespace planq::host::PLANQ_LEVEL::floating {

template <class Core>
void chain_rows(const Product& p, const float* from, float* to) {
  WidePanel panel;
  WideRows rows;
  const int smallest[] = {format_of(p.input.dtype).smallest_exponent(),
                          format_of(p.weight.dtype).smallest_exponent()};
  for (std::int64_t row = 0; row < p.m; ++row)
    for (std::int64_t column = 0; column < p.n; column += kPanelColumns) {
      const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, p.n - column);
      Floats sums[1][kPanelVectors] = {};
      std::memcpy(sums, from + row * p.n + column, sizeof(float) * columns);
      for (std::int64_t term = 0; term < p.k; term += kPanelTerms) {
        const std::int64_t terms = std::min<std::int64_t>(kPanelTerms, p.k - term);
        widen_panel(p.weight, column, columns, term, terms, panel);
        widen_rows(p.input, row, 1, term, terms, rows);
        for (int i = 0; i < terms; i += Core::kGroup)
          add_group<Core, 1>(rows, 0, panel, i, smallest[0], smallest[1], sums);
      }
      std::memcpy(to + row * p.n + column, sums, sizeof(float) * columns);
    }
}

inline void chains(const Product& p, const float* from, float* to) {
  is_fp8(p.input.dtype) ? chain_rows<math::TensorCore8>(p, from, to)
                        : chain_rows<math::TensorCore16>(p, from, to);
}

}  // namespace planq::host::PLANQ_LEVEL::floating
