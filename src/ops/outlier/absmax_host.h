// Maxima of rows and columns, and the codes that follow from them, on the host: tiles of some rows
// and kTileColumns columns, in loops that absmax_host.cpp compiles for every instruction set.
#pragma once

#include <algorithm>
#include <atomic>

#include "host/thread_pool.h"
#include "ops/outlier/absmax_codes.h"
#include "ops/outlier/matrix_rows.h"

namespace planq::outlier {

// The results of one row of a tile.
template <class T>
struct RowTile {
  Magnitude<T> largest;
  std::int32_t outliers;
};

// The factors of a tile's columns.
struct TileFactors {
  float scale[kTileColumns], inverse[kTileColumns];
};

template <class T>
struct TileLoops {
  // Also raises the columns' largest magnitudes.
  RowTile<T> (*measure)(const T* x, int64_t count, OutlierRule<T> rule, Magnitude<T>* columns);
  // Computes codes by a division (divide) or by a product (multiply).
  using Encode = void (*)(const T* x, int64_t count, OutlierRule<T> rule, CodeFactor row,
                          const TileFactors& columns, std::int8_t* row_codes,
                          std::int8_t* column_codes);
  Encode divide, multiply;
};
template <class T>
const TileLoops<T>& tile_loops();

// A matrix in tiles.
struct TiledMatrix {
  // The rows of a tile, and the fewest tiles that are worth waking a thread for.
  static constexpr int64_t kRows = 64, kGrain = 4;

  IndexSpace rows;
  int64_t row_count, columns;

  int64_t tiles_across() const { return column_tiles(columns); }
  int64_t tiles() const { return (row_count + kRows - 1) / kRows * tiles_across(); }
};

struct Tile {
  int64_t first_row, last_row;
  int64_t across, first_column, columns;
};
inline Tile tile_at(const TiledMatrix& matrix, int64_t index) {
  const int64_t down = index / matrix.tiles_across(), across = index % matrix.tiles_across();
  const int64_t row = down * TiledMatrix::kRows, column = across * kTileColumns;
  return {row, std::min(row + TiledMatrix::kRows, matrix.row_count), across, column,
          std::min<int64_t>(kTileColumns, matrix.columns - column)};
}

// Calls visit(tile) for every tile.
template <class Visit>
void for_each_tile(int threads, const TiledMatrix& matrix, const Visit& visit) {
  host::parallel_for(threads, matrix.tiles(), TiledMatrix::kGrain,
                     [&](int64_t first, int64_t last) {
                       for (int64_t i = first; i < last; ++i) visit(tile_at(matrix, i));
                     });
}

// Raises a maximum that other threads raise too. It is never negative, so it can be compared as an
// integer, with NaN above all numbers.
inline void raise(float& maximum, std::uint32_t bits) {
  const std::atomic_ref<float> shared(maximum);
  float held = shared.load(std::memory_order_relaxed);
  while (
      math::bit_cast<std::uint32_t>(held) < bits &&
      !shared.compare_exchange_weak(held, math::bit_cast<float>(bits), std::memory_order_relaxed)) {
  }
}

// Measures the maxima of all rows and columns, without outliers. Calls put(row, its offsets, number
// of the tile in the row, outliers) for each tile of a row. The offsets are those of the operands
// of `rows`; input and maxima of rows are the first two.
template <class T, class Put>
void measure(int threads, const TiledMatrix& matrix, OutlierRule<T> rule, const void* input,
             void* row_absmax, void* column_absmax, const Put& put) {
  const TileLoops<T>& loops = tile_loops<T>();
  auto* const of_rows = static_cast<float*>(row_absmax);
  auto* const of_columns = static_cast<float*>(column_absmax);
  for (int64_t row = 0; row < matrix.row_count; ++row)
    of_rows[matrix.rows.offsets(row).at[kMatrixAbsmax]] = 0;
  std::fill_n(of_columns, matrix.columns, 0.0f);
  for_each_tile(threads, matrix, [&](const Tile& tile) {
    Magnitude<T> largest[kTileColumns] = {};
    for (int64_t row = tile.first_row; row < tile.last_row; ++row) {
      const Offsets at = matrix.rows.offsets(row);
      const T* const x = static_cast<const T*>(input) + at.at[kMatrixInput] + tile.first_column;
      const RowTile<T> found = loops.measure(x, tile.columns, rule, largest);
      raise(of_rows[at.at[kMatrixAbsmax]], float_bits<T>(found.largest));
      put(row, at, tile.across, found.outliers);
    }
    for (int64_t j = 0; j < tile.columns; ++j)
      raise(of_columns[tile.first_column + j], float_bits<T>(largest[j]));
  });
}

}  // namespace planq::outlier
