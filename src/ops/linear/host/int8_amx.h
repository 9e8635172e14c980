// Panels by AMX, which multiplies matrices of bytes: see host/amx.h. No include guard, like the
// other parts of int8_loops.h, which includes this after int8_vnni.h, whose packing AMX shares.

namespace planq::host::PLANQ_LEVEL {

// Loads the sums of 16 rows and 32 columns into two registers: what the rows' sums begin at or,
// where `start` is null, the sums so far.
template <int kRegister>
inline void begin_amx(const std::int32_t* start, const Sums& sums,
                      std::int32_t (&room)[kAmxRows][16]) {
  if (!start) {
    load_amx<kRegister>(sums.data, 4 * sums.pitch);
    load_amx<kRegister + 1>(sums.data + 16, 4 * sums.pitch);
    return;
  }
  for (int r = 0; r < kAmxRows; ++r) _mm512_store_si512(room[r], _mm512_set1_epi32(start[r]));
  load_amx<kRegister>(room, sizeof room[0]);
  load_amx<kRegister + 1>(room, sizeof room[0]);
}

// Adds 16 or 32 rows (kHigh of 1 or 2) times 32 columns of a panel. Terms fill whole registers.
// Registers 0 to 3 hold sums, 4 and 5 rows of the input, 6 and 7 columns.
template <bool kInputUnsigned, int kHigh>
void add_amx_tile(const Rows& rows, const Cell* panel, int width, std::int64_t terms,
                  const std::int32_t* start, const Sums& sums) {
  alignas(64) std::int32_t room[kAmxRows][16];
  const Sums lower = {sums.of(kAmxRows), sums.pitch};
  begin_amx<0>(start, sums, room);
  if constexpr (kHigh == 2) begin_amx<2>(start ? start + kAmxRows : nullptr, lower, room);
  // The sums of the next tile are prefetched on the way: those in the output may be in no cache.
  const std::int64_t share = 2 * kAmxRows * kAmxTerms / terms + 1;
  const std::int32_t* next = sums.of(kHigh * kAmxRows);
  for (std::int64_t term = 0; term < terms; term += kAmxTerms) {
    for (std::int64_t i = 0; i < share; ++i, next += sums.pitch) {
      __builtin_prefetch(next, 1, 2);
      __builtin_prefetch(next + 16, 1, 2);
    }
    const Cell* weights = panel + term * width;
    const Cell* input = rows.data + term;
    load_amx<6>(weights, kGroup * width);
    load_amx<4>(input, rows.row_step);
    multiply_amx<kInputUnsigned, 0, 4, 6>();
    load_amx<7>(weights + 64, kGroup * width);
    multiply_amx<kInputUnsigned, 1, 4, 7>();
    if constexpr (kHigh == 2) {
      load_amx<5>(input + kAmxRows * rows.row_step, rows.row_step);
      multiply_amx<kInputUnsigned, 2, 5, 6>();
      multiply_amx<kInputUnsigned, 3, 5, 7>();
    }
  }
  store_amx<0>(sums.data, 4 * sums.pitch);
  store_amx<1>(sums.data + 16, 4 * sums.pitch);
  if constexpr (kHigh == 2) {
    store_amx<2>(lower.data, 4 * sums.pitch);
    store_amx<3>(lower.data + 16, 4 * sums.pitch);
  }
}

// Adds rows, a multiple of 16, times a panel of `width` columns, a multiple of 32.
template <bool kInputUnsigned>
void add_amx_tiles(const Rows& rows, std::int64_t count, const Cell* panel, int width,
                   std::int64_t terms, const std::int32_t* start, const Sums& sums) {
  const AmxRegisters registers;
  for (std::int64_t i = 0; i < count; i += 2 * kAmxRows) {
    const auto add = i + 2 * kAmxRows <= count ? add_amx_tile<kInputUnsigned, 2>
                                               : add_amx_tile<kInputUnsigned, 1>;
    const Rows some = {rows.data + i * rows.row_step, rows.row_step, rows.group_step};
    for (int column = 0; column < width; column += 32)
      add(some, panel + column * kGroup, width, terms, start ? start + i : nullptr,
          {sums.of(i) + column, sums.pitch});
  }
}

// add_panel, with AMX for as many rows and terms as fill its registers.
template <bool kInputUnsigned>
void add_panel_by_amx(const Rows& rows, std::int64_t count, const Cell* panel, std::int64_t terms,
                      const std::int32_t* start, const Sums& sums) {
  const std::int64_t whole_rows = count / kAmxRows * kAmxRows;
  const std::int64_t whole_terms = terms / kAmxTerms * kAmxTerms;
  const auto from = [&rows](std::int64_t row, std::int64_t term) {
    return Rows{rows.data + row * rows.row_step + term, rows.row_step, rows.group_step};
  };
  if (whole_terms > 0) {
    add_amx_tiles<kInputUnsigned>(rows, whole_rows, panel, kColumns, whole_terms, start, sums);
    if (whole_terms < terms)
      add_panel<kInputUnsigned>(from(0, whole_terms), whole_rows, panel + whole_terms * kColumns,
                                terms - whole_terms, nullptr, sums);
  } else {
    add_panel<kInputUnsigned>(rows, whole_rows, panel, terms, start, sums);
  }
  add_panel<kInputUnsigned>(from(whole_rows, 0), count - whole_rows, panel, terms,
                            start ? start + whole_rows : nullptr,
                            {sums.of(whole_rows), sums.pitch});
}

// Whether AMX takes part in a block whose rows and terms fill its registers, and whose weights are
// packed row by row.
inline bool fills_amx(const Gemm& p, const Block& b) {
  return b.amx && !p.weight.transposed() && p.k % kAmxTerms == 0 && b.rows % kAmxRows == 0;
}

// sums_by_panels for sums in the output, which AMX loads and stores slowly: panels of half the
// columns have twice the terms, and so go over the sums half as often.
template <bool kInputUnsigned>
[[gnu::noinline]] void sums_by_narrow_panels(const Gemm& p, const Block& b,
                                             const std::int32_t* start, const Sums& sums) {
  constexpr int kWidth = kColumns / 2;
  constexpr std::int64_t kSliceTerms = 2 * kLongTerms;
  alignas(64) Cell panel[kSliceTerms * kWidth];
  const Signs signs(p);
  for (int column = 0; column < kColumns; column += kWidth)
    for (std::int64_t term = 0; term < p.k; term += kSliceTerms) {
      const Slice s = {term, std::min(kSliceTerms, p.k - term), b.column + column, kWidth};
      for (int from = 0; from < kWidth; from += 16)
        pack_rows_of_weight(p.weight, s, from, kWidth, signs.flip, panel);
      const Rows rows = {row_at(p.input, b.row, term), p.input.row_stride, kGroup};
      add_amx_tiles<kInputUnsigned>(rows, b.rows, panel, kWidth, s.terms,
                                    term == 0 ? start : nullptr, {sums.data + column, sums.pitch});
    }
}

}  // namespace planq::host::PLANQ_LEVEL
