// Accumulation::GroupsSm90: chains of the same groups as those of TensorSm90, one for each run of
// terms that share a scale. See math/tensor_core.h. No include guard, like the other parts of
// float_loops.h.

namespace planq::host::PLANQ_LEVEL::floating {

// The scales of a panel, by run and by column. A run is at least a group.
struct alignas(64) RunScales {
  float of_run[kPanelTerms / math::TensorCore16::kGroup][kPanelColumns];
};

// Segments are runs, one after another, or hold whole panels. They divide rows: a row's lie a pitch
// from those of the row before.
inline void load_run_scales(const linear::WeightCodes& codes, const Block& b, std::int64_t term,
                            int runs, RunScales& scales) {
  const linear::SegmentScales& stored = codes.scales;
  const std::int64_t first = b.column * stored.pitch + term / codes.segment_size;
  if (stored.stored.dtype == DType::Float32 && !stored.are_nested()) {
    const float* of_row = static_cast<const float*>(stored.stored.absmax) + first;
    for (std::int64_t c = 0; c < b.columns; ++c, of_row += stored.pitch)
      for (int i = 0; i < runs; ++i) scales.of_run[i][c] = of_row[i];
    return;
  }
  for (std::int64_t c = 0; c < b.columns; ++c)
    for (int i = 0; i < runs; ++i) scales.of_run[i][c] = stored.at(first + c * stored.pitch + i);
}

// A run meets the scales of its columns as it is added.
struct JoinRuns {
  const float* scales;

  Floats operator()(Floats before, Floats chain, int, int vector) const {
    return fused(chain, load(scales + vector * kFloatLanes), before);
  }
};

// Adds the runs of some rows in a panel to the sums of their span.
inline void add_runs(const ChainArgs& args, const WideRows& rows, int count, const WidePanel& panel,
                     int terms, int run, const RunScales& scales, float* span) {
  for (int i = 0; i < count; i += kTogether)
    for (int first = 0; first < terms; first += run)
      add_chains<math::TensorCore16>(
          std::min(kTogether, count - i), args, rows, i, panel, first, std::min(first + run, terms),
          JoinRuns{scales.of_run[first / run]}, span + i * kPanelColumns);
}

// Adds the sums of a span to those of the spans before it, and begins the next one.
inline void add_span(float* span, std::int64_t rows, float* sums) {
  for (std::int64_t i = 0; i < rows * kPanelColumns; i += kFloatLanes) {
    *reinterpret_cast<Floats*>(sums + i) = load(sums + i) + load(span + i);
    *reinterpret_cast<Floats*>(span + i) = Floats{};
  }
}

// Not inlined: its arrays would be on the stack beside those of the other bodies.
[[gnu::noinline]] inline void sums_by_groups(const Gemm& p, const Block& b, float* sums) {
  const linear::WeightCodes& codes = *p.weight.codes;
  const linear::WeightCodes unscaled = linear::without_scales(codes);
  GemmOperand weight = p.weight;
  weight.codes = &unscaled;
  const int run = linear::run_terms(codes);
  const std::int64_t span_terms = linear::span_terms(p.k);
  const ChainArgs args{format_of(p.input.dtype).smallest_exponent(),
                       format_of(p.weight.dtype).smallest_exponent(), false};
  WidePanel panel;
  WideRows rows;
  RunScales scales = {};
  alignas(64) float span[kGroupRows * kPanelColumns] = {};
  for (std::int64_t term = 0; term < p.k; term += kPanelTerms) {
    const int terms = static_cast<int>(std::min<std::int64_t>(kPanelTerms, p.k - term));
    widen_codes(weight, b.column, b.columns, term, terms, panel);
    load_run_scales(codes, b, term, (terms + run - 1) / run, scales);
    for (std::int64_t row = 0; row < b.rows; row += kWideRows) {
      const int count = static_cast<int>(std::min<std::int64_t>(kWideRows, b.rows - row));
      widen_rows(p.input, b.row + row, count, term, terms, rows);
      add_runs(args, rows, count, panel, terms, run, scales, span + row * kPanelColumns);
    }
    if ((term + kPanelTerms) % span_terms == 0 || term + kPanelTerms >= p.k)
      add_span(span, b.rows, sums);
  }
}

}  // namespace planq::host::PLANQ_LEVEL::floating
