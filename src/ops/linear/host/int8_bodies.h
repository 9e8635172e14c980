// The bodies that compute the sums of a block, and the choice among them. No include guard, like
// the other parts of int8_loops.h.

namespace planq::host::PLANQ_LEVEL {

// --- Panels --------------------------------------------------------------------------------------

// Whether tiles read the input where it is, since packed rows would be the same bytes.
inline bool is_direct(const Gemm& p) {
  return sizeof(Cell) == 1 && !is_four_bit(p.input.dtype) && !p.input.transposed() &&
         p.k % kGroup == 0;
}

// Adds rows times a panel, by AMX where the block asks for it and a row's terms are side by side.
template <bool kInputUnsigned>
void add_slice([[maybe_unused]] const Block& b, const Rows& rows, std::int64_t count,
               const Cell* panel, std::int64_t terms, const std::int32_t* start, const Sums& sums) {
#if PLANQ_VNNI && PLANQ_SIMD_AMX
  if (b.amx && rows.group_step == kGroup)
    return add_panel_by_amx<kInputUnsigned>(rows, count, panel, terms, start, sums);
#endif
  add_panel<kInputUnsigned>(rows, count, panel, terms, start, sums);
}

// The sums of a block whose input is read where it is.
template <bool kInputUnsigned, std::int64_t kSliceTerms>
[[gnu::noinline]] void sums_by_panels(const Gemm& p, const Block& b, const std::int32_t* start,
                                      const Sums& sums) {
  alignas(64) Cell panel[kSliceTerms * kColumns];
  const Signs signs(p);
  for (std::int64_t term = 0; term < p.k; term += kSliceTerms) {
    const Slice s = {term, std::min(kSliceTerms, p.k - term), b.column, b.columns};
    pack_panel(p.weight, s, signs, panel);
    const Rows rows = {reinterpret_cast<const Cell*>(row_at(p.input, b.row, term)),
                       p.input.row_stride, kGroup};
    add_slice<kInputUnsigned>(b, rows, b.rows, panel, s.terms, term == 0 ? start : nullptr, sums);
  }
}

// The sums of a block whose input is packed like its weights.
template <bool kInputUnsigned>
[[gnu::noinline]] void sums_by_packed_panels(const Gemm& p, const Block& b,
                                             const std::int32_t* start, const Sums& sums) {
  alignas(64) Cell panel[kTerms * kColumns];
  alignas(64) Cell packed[kPackedCells];
  const Signs signs(p);
  const bool lines = p.input.transposed();
  const std::int64_t terms = lines ? kLineTerms : kTerms, most = lines ? kLineRows : kPackedRows;
  for (std::int64_t term = 0; term < p.k; term += terms) {
    const Slice s = {term, std::min(terms, p.k - term), b.column, b.columns};
    pack_panel(p.weight, s, signs, panel);
    for (std::int64_t row = 0; row < b.rows; row += most) {
      const std::int64_t count = std::min(most, b.rows - row);
      add_slice<kInputUnsigned>(b, pack_rows(p.input, b.row + row, count, s, packed), count, panel,
                                s.terms, term == 0 ? start + row : nullptr,
                                {sums.of(row), sums.pitch});
    }
  }
}

// --- Dots ----------------------------------------------------------------------------------------

// Whether dots read weights where they are.
inline bool lies_for_dots(const GemmOperand& weight) {
  return kDotsUnpack || lies_in_bytes(weight);
}

// Rows of weights where they are or, kDots at most, unpacked to `room`.
inline Dots dots_of(const Gemm& p, std::int64_t column, std::int64_t columns, std::int64_t term,
                    std::int64_t count, std::uint8_t (&room)[kDots][kDotTerms]) {
  Dots dots = {.columns = columns, .count = count};
  if (lies_for_dots(p.weight)) {
    dots.weights = row_at(p.weight, column, term);
    dots.step = p.weight.row_stride / (is_four_bit(p.weight.dtype) ? 2 : 1);
    dots.ahead = 4 * dots.step;
    return dots;
  }
  dots.weights = room[0];
  dots.step = kDotTerms;
  for (std::int64_t i = 0; i < columns; ++i) terms_of(p.weight, column + i, term, count, room[i]);
  return dots;
}

// The sums of a block whose weights are not transposed. Operands that are unpacked or gathered are
// so kDotTerms at a time.
template <bool kInputUnsigned>
void sums_by_dots(const Gemm& p, const Block& b, std::int32_t* sums) {
  std::uint8_t input_room[kDots][kDotTerms], weight_room[kDots][kDotTerms];
  const std::uint8_t* inputs[kDots];
  std::memset(sums, 0, sizeof(std::int32_t) * static_cast<std::size_t>(b.rows * b.pitch));
  const bool lies = lies_for_dots(p.weight);
  const std::int64_t most = lies_in_bytes(p.input) && lies ? p.k : kDotTerms;
  const std::int64_t step = lies ? b.columns : kDots;
  for (std::int64_t term = 0; term < p.k; term += most) {
    const std::int64_t count = std::min(most, p.k - term);
    for (std::int64_t row = 0; row < b.rows; row += kDots) {
      const std::int64_t rows = std::min(kDots, b.rows - row);
      for (std::int64_t i = 0; i < rows; ++i)
        inputs[i] = terms_of(p.input, b.row + row + i, term, count, input_room[i]);
      for (std::int64_t column = 0; column < b.columns; column += step) {
        Dots dots = dots_of(p, b.column + column, std::min(step, b.columns - column), term, count,
                            weight_room);
        dots.inputs = inputs;
        dots.pitch = b.pitch;
        add_few_dots<kInputUnsigned>(p, dots, rows, sums + row * b.pitch + column);
      }
    }
  }
}

// --- All bodies ----------------------------------------------------------------------------------

// What the sums of a block's rows begin at: the correction for flipped bits of the weights, see
// Signs. `known` has it where an earlier block had these rows.
template <bool kInputUnsigned>
const std::int32_t* start_of(const Gemm& p, const Block& b, RowSums& known) {
  std::int64_t place = b.row - known.row;
  if (place >= 0 && place + b.rows <= known.rows) return known.start + place;
  if (place != known.rows || place + b.rows > kMostRows) {
    known.row = b.row;
    place = 0;
  }
  known.rows = place + b.rows;
  std::int32_t* start = known.start + place;
  const std::int32_t correction = Signs(p).correction;
  if (correction == 0) {
    std::fill_n(start, b.rows, 0);
    return start;
  }
  sum_input<kInputUnsigned>(p, b, start);
  for (std::int64_t row = 0; row < b.rows; ++row) start[row] *= correction;
  return start;
}

// Corrects sums that began at 0. Until then they may leave int32, and wrap.
inline void add_starts(const Block& b, const std::int32_t* start, const Sums& sums) {
  for (std::int64_t row = 0; row < b.rows; ++row) {
    const auto correction = static_cast<std::uint32_t>(start[row]);
    std::int32_t* to = sums.of(row);
    for (std::int64_t column = 0; column < b.columns; ++column)
      to[column] = static_cast<std::int32_t>(static_cast<std::uint32_t>(to[column]) + correction);
  }
}

inline bool takes_strips(const Gemm& p) { return p.m <= kStripRows && p.weight.transposed(); }

// The sums of a block.
template <bool kInputUnsigned>
void compute_sums(const Gemm& p, const Block& b, RowSums& known, std::int32_t* sums) {
  if (p.k == 0) {
    std::memset(sums, 0, sizeof(std::int32_t) * static_cast<std::size_t>(b.rows * b.pitch));
    return;
  }
  const std::int32_t* start = start_of<kInputUnsigned>(p, b, known);
  // Columns that fill a panel are enough, however few.
  const bool few = b.rows <= kFew || b.columns <= std::min<std::int64_t>(kFew, kColumns - 1);
  if (!takes_strips(p) && (!few || p.weight.transposed()))
    return is_direct(p) ? sums_by_panels<kInputUnsigned, kTerms>(p, b, start, {sums, b.pitch})
                        : sums_by_packed_panels<kInputUnsigned>(p, b, start, {sums, b.pitch});
#if PLANQ_VNNI
  if (takes_strips(p))
    sums_by_strips<kInputUnsigned>(p, b, sums);
  else
#endif
    sums_by_dots<kInputUnsigned>(p, b, sums);
  if (Signs(p).correction != 0) add_starts(b, start, {sums, b.pitch});
}

}  // namespace planq::host::PLANQ_LEVEL
