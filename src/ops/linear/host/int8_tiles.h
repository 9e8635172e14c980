// Rows times a panel, tile by tile, for every instruction set. No include guard, like the other
// parts of int8_loops.h, which includes this after int8_vnni.h or int8_vectors.h.

namespace planq::host::PLANQ_LEVEL {

// add_tile for a number of rows that is known at run time.
template <bool kInputUnsigned, int kRows = kTileRows>
void add_rows(std::int64_t count, const Rows& rows, const Cell* panel, std::int64_t groups,
              const std::int32_t* start, const Sums& sums) {
  if constexpr (kRows > 1)
    if (count < kRows)
      return add_rows<kInputUnsigned, kRows - 1>(count, rows, panel, groups, start, sums);
  add_tile<kInputUnsigned, kRows>(rows, panel, groups, start, sums);
}

// Adds any number of rows times a panel. `start`: what the rows' sums begin at; null: they have
// begun.
template <bool kInputUnsigned>
void add_panel(const Rows& rows, std::int64_t count, const Cell* panel, std::int64_t terms,
               const std::int32_t* start, const Sums& sums) {
  const std::int64_t groups = (terms + kGroup - 1) / kGroup;
  for (std::int64_t i = 0; i < count; i += kTileRows) {
    const Rows tile = {rows.data + i * rows.row_step, rows.row_step, rows.group_step};
    add_rows<kInputUnsigned>(std::min<std::int64_t>(kTileRows, count - i), tile, panel, groups,
                             start ? start + i : nullptr, {sums.of(i), sums.pitch});
  }
}

}  // namespace planq::host::PLANQ_LEVEL
