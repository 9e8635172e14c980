// Accumulation::Lanes: 32 sums of each output by fma, each of some of the terms, which are added up
// as a tree: see math/tensor_core.h. No include guard, like the other parts of float_loops.h.

namespace planq::host::PLANQ_LEVEL::floating {

// Rows whose lanes are held at a time.
constexpr int kLaneRows = 4;
struct alignas(64) Lanes {
  float sums[math::kSumLanes][kLaneRows][kPanelColumns];
};

// Adds neighbouring terms, which all belong to one lane, for every column of a panel.
inline void add_to_lane(const float* row, const float (*panel)[kPanelColumns], int terms,
                        float* lane) {
  Floats low = load(lane), high = load(lane + kFloatLanes);
  for (int i = 0; i < terms; ++i) {
    const Floats input = repeated(row[i]);
    low = fused(input, load(panel[i]), low);
    high = fused(input, load(panel[i] + kFloatLanes), high);
  }
  *reinterpret_cast<Floats*>(lane) = low;
  *reinterpret_cast<Floats*>(lane + kFloatLanes) = high;
}

// The sum over the lanes of a row.
inline void add_up_lanes(Lanes& lanes, int row, float* sums) {
  for (int half = math::kSumLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane)
      for (int c = 0; c < kPanelColumns; ++c)
        lanes.sums[lane][row][c] += lanes.sums[lane + half][row][c];
  std::memcpy(sums, lanes.sums[0][row], sizeof lanes.sums[0][row]);
}

// Not inlined: its arrays would be on the stack beside those of the other body.
[[gnu::noinline]] inline void sums_by_lanes(const Gemm& p, const Block& b, float* sums) {
  Lanes lanes;
  alignas(64) float panel[kPanelTerms][kPanelColumns];
  alignas(64) float lines[kLaneRows][kPanelTerms];
  alignas(64) Lines columns;
  for (std::int64_t row = 0; row < b.rows; row += kLaneRows) {
    const int rows = static_cast<int>(std::min<std::int64_t>(kLaneRows, b.rows - row));
    std::memset(&lanes, 0, sizeof lanes);
    for (std::int64_t term = 0; term < p.k; term += kPanelTerms) {
      const std::int64_t terms = std::min<std::int64_t>(kPanelTerms, p.k - term);
      widen_values(p.weight, b.column, b.columns, term, terms, columns, panel);
      widen_terms(p.input, b.row + row, rows, term, terms, lines);
      for (int r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < terms; i += math::kLaneTerms)
          add_to_lane(lines[r] + i, panel + i,
                      static_cast<int>(std::min<std::int64_t>(math::kLaneTerms, terms - i)),
                      lanes.sums[(term + i) / math::kLaneTerms % math::kSumLanes][r]);
    }
    for (int r = 0; r < rows; ++r) add_up_lanes(lanes, r, sums + (row + r) * kPanelColumns);
  }
}

}  // namespace planq::host::PLANQ_LEVEL::floating
