// Blocks of the product by vectors, whose lanes are rows of the weights. No include guard, like the
// other parts of host_loops.h.
//
// One row of the input is multiplied with codes as they are unpacked: a vector has sixteen codes of
// a few rows, and the sums of neighbouring lanes are added up in the end. For more rows a span of a
// tile is unpacked once, with four codes of each row side by side: then lanes are complete sums.

namespace planq::gguf::products::PLANQ_LEVEL {

constexpr int kTiles = kTileColumns / kLanes;  // of a block

// The rows of a tile from a column of the product on. Four of them begin at the last column but
// three, at most: then `settle` puts their sums where they belong. `step`: columns to the tile that
// is read next. Whole steps ahead memory is prefetched, so far that it comes in time.
inline Rows rows_of_tile(const Gemm& p, int64_t column, int64_t step) {
  constexpr int64_t kAhead = 24 << 10;  // bytes
  const int64_t bytes = std::max<int64_t>(1, step * std::abs(p.weight.row_stride));
  const auto of = [&](int64_t own) { return p.weight.data + own * p.weight.row_stride; };
  Rows rows;
  for (int q = 0; q < kQuarters; ++q) rows.quarter[q] = of(std::min(column + 4 * q, p.n - 4));
  rows.stride = p.weight.row_stride;
  rows.ahead = of(column + step * ((kAhead + bytes - 1) / bytes));
  return rows;
}

// Moves the sums of the last columns, if they are fewer than four, to their lanes.
inline void settle(const Block& b, float* sums) {
  const int64_t left = b.columns % 4;
  if (left == 0) return;
  for (int64_t row = 0; row < b.rows; ++row) {
    float* const last = sums + row * kTileColumns + b.columns - left;
    std::copy_n(last + 4 - left, left, last);
  }
}

// --- One row of the input ------------------------------------------------------------------------

// The exact sums of a block's sub-blocks; `input`: the codes that it is multiplied with.
template <class B>
PLANQ_INLINE void dots_of_block(const Rows& rows, const std::int8_t* input, Vector* dots) {
  using U = Unpack<B>;
  using P = Products<U::kLargest>;
  constexpr int kDots = U::kSteps * U::kPieces * 16 / B::kSubBlock;
#pragma GCC unroll 8
  for (int unit = 0; unit < U::kUnits; ++unit) {
    Vector sums[kDots][4];
#pragma GCC unroll 4
    for (int j = 0; j < kDots; ++j)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sums[j][i] = zero();
#pragma GCC unroll 2
    for (int step = 0; step < U::kSteps; ++step)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const auto raw = U::raw(rows, i, unit, step);
#pragma GCC unroll 4
        for (int piece = 0; piece < U::kPieces; ++piece) {
          Vector& sum = sums[piece % kDots][i];
          sum = P::add(sum, U::code(raw, unit, step, piece),
                       repeated(input + U::element(unit, step, piece)));
        }
      }
#pragma GCC unroll 4
    for (int j = 0; j < kDots; ++j) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sums[j][i] = P::told(sums[j][i]);
      dots[U::element(unit, 0, j) / B::kSubBlock] = totals(sums[j]);
    }
  }
}

template <class B>
void sums_of_row(const Gemm& p, int64_t column, const InputSpan* input, int64_t span_step,
                 float* sums) {
  using U = Unpack<B>;
  constexpr int kDots = B::kElements / B::kSubBlock;
  Rows rows = rows_of_tile(p, column, kLanes);
  Heads<typename U::Scales::Head, B> heads;
  Floats total = no_floats();
  for (int64_t k = 0; k < p.k; k += kSpan, input += span_step) {
    const int terms = static_cast<int>(std::min<int64_t>(kSpan, p.k - k));
    heads.fill(rows, terms / B::kElements);
    Floats chain = no_floats();
    for (int first = 0; first < terms; first += B::kElements) {
      Vector dots[kDots];
      dots_of_block<B>(rows, input->codes + first, dots);
      const typename U::Scales scales(rows, heads.of(first / B::kElements));
#pragma GCC unroll 16
      for (int j = 0; j < kDots; ++j) {
        const int i = first / B::kSubBlock + j;
        const Floats scale = scales.scale(j) * floats(input->scale[i * B::kSubBlock / kGroup]);
        const Vector dot =
            U::kOffset == 0
                ? dots[j]
                : add_words(dots[j], words(static_cast<std::uint32_t>(input->start[i])));
        chain = fused(scale, to_floats(dot), chain);
        if constexpr (U::Scales::kHasMinimum)
          chain = fused(scales.minimum(j), floats(input->sum[i]), chain);
      }
      rows.template advance<B::kBytes>();
    }
    total = total + chain;
  }
  store_floats(sums, total);
}

// --- More rows -----------------------------------------------------------------------------------

// A span of a block's weights. Word (term / 4, lane) has four codes of a row.
struct Panel {
  alignas(64) std::uint8_t codes[kTiles][kSpan / 4][sizeof(Vector)];
  alignas(64) float scale[kTiles][kSpan / 16][kLanes], minimum[kTiles][kSpan / 16][kLanes];
};

template <class B>
void unpack_tile(Rows& rows, int terms, int tile, Panel& panel) {
  using U = Unpack<B>;
  Heads<typename U::Scales::Head, B> heads;
  heads.fill(rows, terms / B::kElements);
  for (int first = 0; first < terms; first += B::kElements) {
#pragma GCC unroll 8
    for (int unit = 0; unit < U::kUnits; ++unit)
#pragma GCC unroll 2
      for (int step = 0; step < U::kSteps; ++step) {
        Vector codes[U::kPieces][4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const auto raw = U::raw(rows, i, unit, step);
#pragma GCC unroll 4
          for (int piece = 0; piece < U::kPieces; ++piece)
            codes[piece][i] = U::code(raw, unit, step, piece);
        }
#pragma GCC unroll 4
        for (int piece = 0; piece < U::kPieces; ++piece) {
          transpose(codes[piece]);
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i)
            store(panel.codes[tile][(first + U::element(unit, step, piece)) / 4 + i],
                  codes[piece][i]);
        }
      }
    const typename U::Scales scales(rows, heads.of(first / B::kElements));
#pragma GCC unroll 16
    for (int j = 0; j < B::kElements / B::kSubBlock; ++j) {
      const int i = first / B::kSubBlock + j;
      store_floats(panel.scale[tile][i], scales.scale(j));
      if constexpr (U::Scales::kHasMinimum) store_floats(panel.minimum[tile][i], scales.minimum(j));
    }
    rows.template advance<B::kBytes>();
  }
}

// The same of a type with a grid, row by row.
template <gguf::HasEights B>
void unpack_tile(Rows& rows, int, int tile, Panel& panel) {
  static_assert(B::kElements == kSpan);
  constexpr std::uint64_t kSigns = 0x8080808080808080u, kOnes = 0x0101010101010101u;
  for (int lane = 0; lane < kLanes; ++lane) {
    const gguf::Bytes block = rows.row(lane % 4, lane / 4);
    for (int i = 0; i < kSpan / 8; ++i) {
      // Of -kLargest to kLargest in each byte, none carries anything over.
      const std::uint64_t eight =
          (B::eight(block, i) ^ kSigns) - kOnes * (128 - Unpack<B>::kOffset);
      const std::uint32_t words[] = {static_cast<std::uint32_t>(eight),
                                     static_cast<std::uint32_t>(eight >> 32)};
      for (int word = 0; word < 2; ++word)
        std::memcpy(&panel.codes[tile][2 * i + word][4 * lane], &words[word], 4);
    }
    for (int j = 0; j < kSpan / B::kSubBlock; ++j)
      panel.scale[tile][j][lane] = B::scale(block, j * B::kSubBlock);
  }
  rows.template advance<B::kBytes>();
}

// Adds the chains of kRows rows of the input with a panel to their sums.
template <int kSubBlock, bool kHasMinimum, int kLargest, int kRows>
void add_rows(const Panel& panel, int terms, const InputSpan* input, float* sums) {
  using P = Products<kLargest>;
  constexpr int kWords = kSubBlock / 4, kSteps = std::min(P::kSteps, kWords);
  Floats chain[kRows][kTiles];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) chain[r][t] = no_floats();
  for (int i = 0; i < terms / kSubBlock; ++i) {
    Vector dots[kRows][kTiles];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t)
        dots[r][t] = words(static_cast<std::uint32_t>(input[r].start[i]));
#pragma GCC unroll 8
    for (int first = 0; first < kWords; first += kSteps) {
#if PLANQ_VNNI
      auto& parts = dots;
#else
      Vector parts[kRows][kTiles];
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int t = 0; t < kTiles; ++t) parts[r][t] = zero();
#endif
#pragma GCC unroll 8
      for (int word = first; word < first + kSteps; ++word) {
        Vector weight[kTiles];
#pragma GCC unroll 4
        for (int t = 0; t < kTiles; ++t) weight[t] = load(panel.codes[t][i * kWords + word]);
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
          std::uint32_t four;
          std::memcpy(&four, input[r].codes + i * kSubBlock + 4 * word, sizeof four);
          const Vector codes = words(four);
#pragma GCC unroll 4
          for (int t = 0; t < kTiles; ++t) parts[r][t] = P::add(parts[r][t], weight[t], codes);
        }
      }
#if !PLANQ_VNNI
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int t = 0; t < kTiles; ++t) dots[r][t] = add_words(dots[r][t], P::told(parts[r][t]));
#endif
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) {
        const Floats scale =
            load_floats(panel.scale[t][i]) * floats(input[r].scale[i * kSubBlock / kGroup]);
        chain[r][t] = fused(scale, to_floats(dots[r][t]), chain[r][t]);
        if constexpr (kHasMinimum)
          chain[r][t] =
              fused(load_floats(panel.minimum[t][i]), floats(input[r].sum[i]), chain[r][t]);
      }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) {
      float* const to = sums + r * kTileColumns + t * kLanes;
      store_floats(to, load_floats(to) + chain[r][t]);
    }
}

// The same for any number of rows.
template <int kSubBlock, bool kHasMinimum, int kLargest, int kRows = kRowsAtOnce>
void add_all_rows(const Panel& panel, int terms, const InputSpan* input, int64_t rows,
                  float* sums) {
  int64_t row = 0;
  for (; row + kRows <= rows; row += kRows)
    add_rows<kSubBlock, kHasMinimum, kLargest, kRows>(panel, terms, input + row,
                                                      sums + row * kTileColumns);
  if constexpr (kRows > 1)
    if (row < rows)
      add_all_rows<kSubBlock, kHasMinimum, kLargest, kRows - 1>(
          panel, terms, input + row, rows - row, sums + row * kTileColumns);
}

template <class B>
void sums_of_rows(const Gemm& p, const Block& b, float* sums) {
  using U = Unpack<B>;
  Panel panel;
  Rows rows[kTiles];
  for (int t = 0; t < kTiles; ++t) rows[t] = rows_of_tile(p, b.column + t * kLanes, kTileColumns);
  std::fill_n(sums, b.rows * kTileColumns, 0.0f);
  const InputSpan* input = b.spans;
  for (int64_t k = 0; k < p.k; k += kSpan, input += b.span_step) {
    const int terms = static_cast<int>(std::min<int64_t>(kSpan, p.k - k));
    for (int t = 0; t < kTiles; ++t) unpack_tile<B>(rows[t], terms, t, panel);
    add_all_rows<B::kSubBlock, U::Scales::kHasMinimum, U::kLargest>(panel, terms, input, b.rows,
                                                                    sums);
  }
}

// The sums of a product of at least four columns.
template <class B>
void vector_sums(const Gemm& p, const Block& b, float* sums) {
  if constexpr (gguf::HasEights<B>) {
    sums_of_rows<B>(p, b, sums);
  } else if (b.rows > 1) {
    sums_of_rows<B>(p, b, sums);
  } else {
    for (int64_t column = 0; column < b.columns; column += kLanes)
      sums_of_row<B>(p, b.column + column, b.spans, b.span_step, sums + column);
  }
  settle(b, sums);
}

}  // namespace planq::gguf::products::PLANQ_LEVEL
