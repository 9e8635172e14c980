// How large a block of a gemm is, and its computation: what host/int8.cpp calls. No include guard,
// like the other parts of int8_loops.h.

namespace planq::host::PLANQ_LEVEL {

// Whether int32 sums are added up in the output itself. A block may then have any number of rows,
// and a panel is packed once for all of them.
inline bool adds_in_place(const Gemm& p) {
  return p.output_dtype == DType::Int32 && is_direct(p) && p.k > 0 && p.m > kFew;
}

// Columns of a block. Only strips are wider than a panel.
inline std::int64_t columns_of(const Gemm& p, int threads) {
  if (!takes_strips(p)) return kColumns;
  const std::int64_t share = (p.n + threads - 1) / threads, most = kStripSums / p.m;
  return std::max<std::int64_t>(kColumns, std::min(share, most) / kColumns * kColumns);
}

// Rows of a block: as many as it may have while every thread still gets some blocks.
inline std::int64_t rows_of(const Gemm& p, int threads, bool amx) {
  std::int64_t most = is_direct(p) ? kDirectRows : kBlockRows;
  if (adds_in_place(p)) {
    const std::int64_t across = (p.n + kColumns - 1) / kColumns * p.batch.size();
    const std::int64_t down = threads > 1 ? (kShares * threads + across - 1) / across : 1;
    const std::int64_t near =
        std::clamp(kNearRows / p.k / kAmxRows * kAmxRows, kDirectRows, kMostRows);
    most = std::clamp((p.m + down - 1) / down, kDirectRows, near);
  }
  const std::int64_t down = (p.m + most - 1) / most, rows = (p.m + down - 1) / down;
  const std::int64_t tile = amx ? kAmxRows : kTileRows;
  return std::min(most, (rows + tile - 1) / tile * tile);
}

// A block of at most kRoomRows rows, whose sums are on the stack.
template <bool kInputUnsigned, std::int64_t kRoomRows>
[[gnu::noinline]] void compute_in_room(const Gemm& p, Block b, RowSums& known) {
  alignas(64) std::int32_t sums[kRoomRows * kColumns];
  b.pitch = (b.columns + kColumns - 1) / kColumns * kColumns;
  compute_sums<kInputUnsigned>(p, b, known, sums);
  const std::int64_t end = b.column + b.columns;
  for (std::int32_t* from = sums; b.column < end; b.column += kColumns, from += kColumns) {
    b.columns = std::min<std::int64_t>(kColumns, end - b.column);
    store_block(p, b, from);
  }
}

// A block of any number of rows.
template <bool kInputUnsigned>
void compute_rows(const Gemm& p, const Block& b, RowSums& known) {
  if (adds_in_place(p) && b.columns == kColumns && b.rows > kFew) {
    const std::int32_t* start = start_of<kInputUnsigned>(p, b, known);
    const Sums sums = {reinterpret_cast<std::int32_t*>(p.output) + b.row * p.output_row + b.column,
                       p.output_row};
#if PLANQ_VNNI && PLANQ_SIMD_AMX
    if (fills_amx(p, b)) return sums_by_narrow_panels<kInputUnsigned>(p, b, start, sums);
#endif
    return sums_by_panels<kInputUnsigned, kLongTerms>(p, b, start, sums);
  }
  const bool direct = is_direct(p);
  const std::int64_t most = direct ? kDirectRows : kBlockRows;
  for (std::int64_t row = 0; row < b.rows; row += most) {
    Block part = b;
    part.row += row;
    part.rows = std::min(most, b.rows - row);
    direct ? compute_in_room<kInputUnsigned, kDirectRows>(p, part, known)
           : compute_in_room<kInputUnsigned, kBlockRows>(p, part, known);
  }
}

inline void compute_block(const Gemm& p, Block b, RowSums& known) {
  p.input.dtype == DType::UInt8 ? compute_rows<true>(p, b, known)
                                : compute_rows<false>(p, b, known);
}

}  // namespace planq::host::PLANQ_LEVEL
