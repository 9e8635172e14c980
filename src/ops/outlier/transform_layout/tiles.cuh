// What a block of threads does for one tile of the frame: which words of the input a thread loads,
// where they stand in shared memory, and which words of the output it stores. A word is 4 bytes:
// four neighbours of a row of 8-bit elements, or one element of 32 bits.
//
// Both sides go through their part of the tile in the order of their memory, so that the lanes of a
// warp load and store whole sectors. Shared memory has the tile row by row; in each row the words
// are permuted, so that the lanes of a warp meet no bank twice in whatever order a side goes.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "ops/outlier/transform_layout/desc.h"

// Compilers of the host, by which the tests run all this, know no such pragma.
#if defined(__CUDA_ARCH__)
#define PLANQ_TILE_UNROLL _Pragma("unroll")
#else
#define PLANQ_TILE_UNROLL
#endif

namespace planq::transform_layout {

inline constexpr unsigned kThreads = 256;
inline constexpr int kBlocks = 3;                                  // of a multiprocessor, at least
inline constexpr unsigned kTileWords = 4096;                       // 16 KiB
inline constexpr unsigned kWordsOfThread = kTileWords / kThreads;  // under way together
inline constexpr unsigned kPiece = 32 * outlier::kPanel;           // 32 rows of a panel

template <class E>
struct TileOf;
template <>
struct TileOf<std::uint8_t> {
  static constexpr unsigned kSide = 128, kPerWord = 4;
  // Numbers of rows differ in bits 0 and 1 (Col32), 1 and 2 (ColTuring) or 0 and 3 (ColAmpere)
  // among lanes that hold the same columns, and in bits 2 to 6 where the input is turned.
  PLANQ_HD static constexpr unsigned permutation(unsigned row) {
    return (row & 1) << 3 ^ (row & 2) << 3 ^ (row & 4) << 1 ^ (row & 8) << 1 ^ (row & 16) >> 2 ^
           (row & 32) >> 4 ^ (row & 64) >> 6;
  }
};
template <>
struct TileOf<std::uint32_t> {
  static constexpr unsigned kSide = 64, kPerWord = 1;
  // Numbers of rows differ in bits 1 and 2 (ColTuring) among lanes that hold the same columns;
  // where the input is turned, in bits 0 to 4, or 0 to 2 (ColTuring) at four columns.
  PLANQ_HD static constexpr unsigned permutation(unsigned row) {
    return (row & 1) ^ (row & 2) << 2 ^ (row & 4) << 2 ^ (row & 8) >> 2 ^ (row & 16) >> 2;
  }
};

template <class E>
struct Tile {
  using Of = TileOf<E>;
  static constexpr unsigned kSide = Of::kSide, kPerWord = Of::kPerWord;
  static constexpr unsigned kAcross = kSide / kPerWord;  // words of a row

  PLANQ_HD static constexpr unsigned slot(unsigned row, unsigned word) {
    return row * kAcross + (word ^ Of::permutation(row));
  }
};

// Word `index` of a tile in the order of a side's memory, or as near to it as panels of the tile's
// height are.
struct TileWord {
  unsigned row, column;  // of the word's first element
};
template <class E, Layout kLayout>
PLANQ_HD constexpr TileWord word_of(unsigned index) {
  using T = Tile<E>;
  if constexpr (kLayout == Layout::Row)
    return {index / T::kAcross, index % T::kAcross * T::kPerWord};
  constexpr unsigned kPanelWords = T::kSide * outlier::kPanel / T::kPerWord;
  const unsigned panel = index / kPanelWords, offset = index % kPanelWords * T::kPerWord;
  const auto place = outlier::panel_element(kLayout, offset % kPiece);
  return {offset / kPiece * 32 + place.row, panel * outlier::kPanel + place.column};
}

// One side of the transformation, as a tile sees it.
template <class E>
struct Side {
  E* data;
  MatrixLines lines;
  bool words;  // every word of it is aligned

  // The word's first element.
  template <Layout kLayout>
  PLANQ_HD E* at(std::int64_t first_row, std::int64_t first_column, const TileWord& word) const {
    if constexpr (kLayout == Layout::Row)
      return data + lines.line_at(first_row + word.row) + first_column + word.column;
    const auto place = outlier::panel_place(kLayout, word.row, word.column % outlier::kPanel);
    const std::int64_t panel = (first_column + word.column) / outlier::kPanel;
    return data + lines.line_at(panel * lines.panel_lines + first_row + place.line) + place.at;
  }
  // The elements of a word that there are, of a matrix of this extent; others are 0.
  template <Layout kLayout>
  PLANQ_HD std::uint32_t load(std::int64_t first_row, std::int64_t first_column,
                              const TileWord& word) const {
    const std::int64_t left = lines.columns - first_column - word.column;
    if (first_row + word.row >= lines.rows || left <= 0) return 0;
    const E* from = at<kLayout>(first_row, first_column, word);
    if constexpr (sizeof(E) == 4) {
      return *from;
    } else {
      if (words && left >= 4) return *reinterpret_cast<const std::uint32_t*>(from);
      std::uint32_t result = 0;
      for (int i = 0; i < 4; ++i)
        if (i < left) result |= std::uint32_t{from[i]} << 8 * i;
      return result;
    }
  }
  // Stores the elements of a word that the memory has places for.
  template <Layout kLayout>
  PLANQ_HD void store(std::int64_t first_row, std::int64_t first_column, const TileWord& word,
                      std::uint32_t value) const {
    const std::int64_t left = lines.held_columns() - first_column - word.column;
    if (first_row + word.row >= lines.held_rows() || left <= 0) return;
    E* to = at<kLayout>(first_row, first_column, word);
    if constexpr (sizeof(E) == 4) {
      *to = value;
    } else {
      if (words && left >= 4) {
        *reinterpret_cast<std::uint32_t*>(to) = value;
        return;
      }
      for (int i = 0; i < 4; ++i)
        if (i < left) to[i] = static_cast<std::uint8_t>(value >> 8 * i);
    }
  }
};

template <class E>
struct Args {
  Side<const E> input;
  Side<E> output;
  std::int64_t across, tiles;  // of a row, and all
};

// --- A thread's part of a tile -------------------------------------------------------------------

// Byte i of word j becomes byte j of word i.
PLANQ_HD void turn_bytes(std::uint32_t (&words)[4]) {
  const auto picked = [](std::uint32_t a, std::uint32_t b, std::uint32_t places) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(a, b, places);
#else
    const std::uint64_t both = std::uint64_t{b} << 32 | a;
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i)
      result |= static_cast<std::uint32_t>(both >> 8 * (places >> 4 * i & 7) & 0xFF) << 8 * i;
    return result;
#endif
  };
  const std::uint32_t a = picked(words[0], words[1], 0x5140),
                      b = picked(words[2], words[3], 0x5140),
                      c = picked(words[0], words[1], 0x7362),
                      d = picked(words[2], words[3], 0x7362);
  words[0] = picked(a, b, 0x5410);
  words[1] = picked(a, b, 0x7632);
  words[2] = picked(c, d, 0x5410);
  words[3] = picked(c, d, 0x7632);
}

// Squares of 4 x 4 bytes in the order of a side's memory: the first row, as a word.
template <Layout kLayout>
PLANQ_HD constexpr TileWord square_of(unsigned index) {
  constexpr unsigned kAcross = Tile<std::uint8_t>::kAcross, kPanelWords = outlier::kPanel / 4;
  if constexpr (kLayout == Layout::Row) return {index / kAcross * 4, index % kAcross * 4};
  constexpr unsigned kPanelSquares = kPanelWords * (Tile<std::uint8_t>::kSide / 4);
  const unsigned in_panel = index % kPanelSquares;
  return {in_panel / kPanelWords * 4,
          index / kPanelSquares * outlier::kPanel + in_panel % kPanelWords * 4};
}

// What a thread loads of the tile at (row, column) of the frame, in the rows of the input.
template <class E, Layout kLayout, bool kTurned>
PLANQ_HD void load_tile(const Side<const E>& side, std::int64_t row, std::int64_t column,
                        unsigned thread, std::uint32_t (&words)[kWordsOfThread]) {
  const std::int64_t first_row = kTurned ? column : row, first_column = kTurned ? row : column;
  PLANQ_TILE_UNROLL
  for (unsigned i = 0; i < kWordsOfThread; ++i) {
    TileWord word{};
    if constexpr (kTurned && sizeof(E) == 1) {
      word = square_of<kLayout>(thread + i / 4 * kThreads);
      word.row += i % 4;
    } else {
      word = word_of<E, kLayout>(thread + i * kThreads);
    }
    words[i] = side.template load<kLayout>(first_row, first_column, word);
  }
}

// The same words to their slots, in the rows of the frame.
template <class E, Layout kLayout, bool kTurned>
PLANQ_HD void put_tile(std::uint32_t (&words)[kWordsOfThread], unsigned thread,
                       std::uint32_t* tile) {
  using T = Tile<E>;
  PLANQ_TILE_UNROLL
  for (unsigned i = 0; i < kWordsOfThread; ++i) {
    if constexpr (kTurned && sizeof(E) == 1) {
      if (i % 4 != 0) continue;
      std::uint32_t square[4] = {words[i], words[i + 1], words[i + 2], words[i + 3]};
      turn_bytes(square);
      const TileWord word = square_of<kLayout>(thread + i / 4 * kThreads);
      PLANQ_TILE_UNROLL
      for (unsigned j = 0; j < 4; ++j) tile[T::slot(word.column + j, word.row / 4)] = square[j];
    } else {
      const TileWord word = word_of<E, kLayout>(thread + i * kThreads);
      const unsigned slot =
          kTurned ? T::slot(word.column, word.row) : T::slot(word.row, word.column / T::kPerWord);
      tile[slot] = words[i];
    }
  }
}

template <class E, Layout kLayout>
PLANQ_HD void store_tile(const Side<E>& side, std::int64_t row, std::int64_t column,
                         unsigned thread, const std::uint32_t* tile) {
  using T = Tile<E>;
  PLANQ_TILE_UNROLL
  for (unsigned i = 0; i < kWordsOfThread; ++i) {
    const TileWord word = word_of<E, kLayout>(thread + i * kThreads);
    side.template store<kLayout>(row, column, word,
                                 tile[T::slot(word.row, word.column / T::kPerWord)]);
  }
}

}  // namespace planq::transform_layout
