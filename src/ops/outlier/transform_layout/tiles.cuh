// What a thread block does for one tile of the frame: which vectors of the input a thread loads,
// where their words lie in shared memory, and which vectors of the output it stores. A word is 4
// bytes: four neighbours of a row of 8-bit elements, or one 32-bit element. A vector is the 16
// bytes of an aligned access: four words of a row, or for ColTuring with 8-bit elements a word of
// each of four rows. "Turned" means that the input is the transpose of the frame.
//
// Threads are assigned to vectors so that a warp loads and stores whole segments of 128 bytes.
// Shared memory holds the tile row by row. In each row the vectors are permuted, so that no access
// order of either side has bank conflicts.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/host_device.h"
#include "ops/outlier/transform_layout/desc.h"
#include "ops/outlier/turned_bytes.h"

// Host compilers do not know this pragma; the tests compile this file for the host too.
#if defined(__CUDA_ARCH__)
#define PLANQ_TILE_UNROLL _Pragma("unroll")
#else
#define PLANQ_TILE_UNROLL
#endif

namespace planq::transform_layout {

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kTileRows = 128, kTileWords = 32 * kTileRows;  // 16 KiB
inline constexpr unsigned kVectors = 4;                                  // of a thread
static_assert(kThreads * kVectors * 4 == kTileWords);

struct alignas(16) Vector {
  std::uint32_t word[4];
};

template <class E>
inline constexpr unsigned kPerWord = 4 / sizeof(E);
template <class E>
inline constexpr unsigned kTileColumns = 32 * kPerWord<E>;

// Whether a vector has a word of each of four rows, two apart, instead of four words of one row.
template <class E, Layout kLayout>
inline constexpr bool kStacked = sizeof(E) == 1 && kLayout == Layout::ColTuring;

// An element of a tile.
struct Place {
  unsigned row, column;
};

// The first element of word i of the vector that begins at `vector`.
template <class E, Layout kLayout>
PLANQ_HD constexpr Place word_of(Place vector, unsigned i) {
  if constexpr (kStacked<E, kLayout>) return {vector.row + 2 * i, vector.column};
  return {vector.row, vector.column + i * kPerWord<E>};
}

// One side of the transformation, as a tile sees it.
template <class E>
struct Side {
  static constexpr int kWordElements = 4 / sizeof(E);

  E* data;
  MatrixLines lines;
  std::int64_t stride;  // from line to line, where `vectors`
  bool vectors;         // all vectors in memory are aligned and whole
  bool words;           // all words are aligned

  // The address of a vector, whose words are consecutive in memory.
  template <Layout kLayout, bool kVectors>
  PLANQ_HD E* at(std::int64_t first_row, std::int64_t first_column, Place place) const {
    const auto line_at = [&](std::int64_t line) {
      return kVectors ? line * stride : lines.line_at(line);
    };
    if constexpr (kLayout == Layout::Row)
      return data + line_at(first_row + place.row) + first_column + place.column;
    const auto in_panel =
        outlier::panel_place(kLayout, place.row, place.column % unsigned{outlier::kPanel});
    const std::int64_t panel = (first_column >> 5) + place.column / unsigned{outlier::kPanel};
    return data + line_at(panel * lines.panel_lines + first_row + in_panel.line) + in_panel.at;
  }
  // How many elements of a word lie in a matrix of this extent.
  PLANQ_HD static int left(std::int64_t first_row, std::int64_t first_column, Place word,
                           std::int64_t rows, std::int64_t columns) {
    const int below = within_tile(rows - first_row), right = within_tile(columns - first_column);
    return static_cast<int>(word.row) < below ? right - static_cast<int>(word.column) : 0;
  }

  // Loads the vector that begins at a place; elements outside of the matrix are 0.
  template <Layout kLayout, bool kVectors>
  PLANQ_HD Vector load(std::int64_t first_row, std::int64_t first_column, Place place) const {
    Vector result{};
    const auto left_of = [&](unsigned i) {
      return left(first_row, first_column, word_of<E, kLayout>(place, i), lines.rows,
                  lines.columns);
    };
    if constexpr (kVectors) {
      if (left_of(0) <= 0) return result;
      result = load_vector(at<kLayout, true>(first_row, first_column, place));
      if (left_of(3) >= kWordElements) return result;
      PLANQ_TILE_UNROLL
      for (unsigned i = 0; i < 4; ++i) result.word[i] &= mask_of(left_of(i));
      return result;
    } else {
      const E* from = at<kLayout, false>(first_row, first_column, place);
      PLANQ_TILE_UNROLL
      for (unsigned i = 0; i < 4; ++i)
        result.word[i] = load_word(from + i * kPerWord<E>, left_of(i));
      return result;
    }
  }
  // Stores those elements of a vector that lie in memory, padding included.
  template <Layout kLayout, bool kVectors>
  PLANQ_HD void store(std::int64_t first_row, std::int64_t first_column, Place place,
                      const Vector& vector) const {
    const auto left_of = [&](unsigned i) {
      return left(first_row, first_column, word_of<E, kLayout>(place, i), lines.held_rows(),
                  lines.held_columns());
    };
    if constexpr (kVectors) {
      if (left_of(0) > 0) store_vector(at<kLayout, true>(first_row, first_column, place), vector);
    } else {
      E* to = at<kLayout, false>(first_row, first_column, place);
      PLANQ_TILE_UNROLL
      for (unsigned i = 0; i < 4; ++i) store_word(to + i * kPerWord<E>, left_of(i), vector.word[i]);
    }
  }

 private:
  // What is left of an extent from a tile on, limited to the size of a tile.
  PLANQ_HD static int within_tile(std::int64_t extent) {
    return static_cast<int>(extent < kTileRows ? extent : kTileRows);
  }
  PLANQ_HD static std::uint32_t mask_of(int left) {
    if (left <= 0) return 0;
    return left >= kWordElements ? ~0u : ~(~0u << 8 * sizeof(E) * static_cast<unsigned>(left));
  }
  PLANQ_HD static Vector load_vector(const E* from) {
    Vector result;
#if defined(__CUDA_ARCH__)
    const uint4 v = __ldcs(reinterpret_cast<const uint4*>(from));
    result = {v.x, v.y, v.z, v.w};
#else
    std::memcpy(&result, from, sizeof result);
#endif
    return result;
  }
  PLANQ_HD static void store_vector(E* to, const Vector& v) {
#if defined(__CUDA_ARCH__)
    __stcs(reinterpret_cast<uint4*>(to), make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]));
#else
    std::memcpy(to, &v, sizeof v);
#endif
  }
  PLANQ_HD std::uint32_t load_word(const E* from, int left) const {
    if (left <= 0) return 0;
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
  PLANQ_HD void store_word(E* to, int left, std::uint32_t word) const {
    if (left <= 0) return;
    if constexpr (sizeof(E) == 4) {
      *to = word;
    } else {
      if (words && left >= 4) {
        *reinterpret_cast<std::uint32_t*>(to) = word;
        return;
      }
      for (int i = 0; i < 4; ++i)
        if (i < left) to[i] = static_cast<std::uint8_t>(word >> 8 * i);
    }
  }
};

// Whether every line begins at a multiple of this many bytes.
template <class E>
bool has_aligned(const E* data, const MatrixLines& lines, int bytes) {
  bool result = reinterpret_cast<std::uintptr_t>(data) % static_cast<unsigned>(bytes) == 0;
  for (int i = 0; i < lines.lines.rank; ++i)
    result = result && lines.lines.axes[i].stride[0] * static_cast<int>(sizeof(E)) % bytes == 0;
  return result;
}

template <class E>
Side<E> side_of(E* data, const MatrixLines& lines) {
  Side<E> side{data, lines, 0, false, has_aligned(data, lines, 4)};
  if (lines.lines.rank > 1) return side;
  if (lines.lines.rank == 1) side.stride = lines.lines.axes[0].stride[0];
  side.vectors = has_aligned(data, lines, 16) && lines.held_columns() % (4 * kPerWord<E>) == 0;
  return side;
}

template <class E>
struct Args {
  Side<const E> input;
  Side<E> output;
  std::int64_t tiles;
};

// Whether the vectors of both sides hold the same pieces of rows, so that shared memory is not
// needed.
template <class E>
bool is_copy(const Args<E>& args, bool turned) {
  const auto of_rows = [](const auto& side) {
    return side.vectors && (sizeof(E) == 4 || side.lines.layout != Layout::ColTuring);
  };
  return !turned && of_rows(args.input) && of_rows(args.output);
}

// --- The tile in shared memory -------------------------------------------------------------------

// The position of word `word` of row `row`. The permutation avoids bank conflicts for these
// accesses of a warp. Lanes that access vectors have different vectors of a row, or rows that
// differ in bits 1 and 2 (32-bit ColTuring) or 2 to 4 (turned, 32 bits). Lanes that store words
// have rows that differ in bits 4 to 6 (turned) or 2 to 4 (turned from ColTuring).
PLANQ_HD constexpr unsigned slot(unsigned row, unsigned word) {
  const unsigned permutation = (row >> 4 & 7) ^ (row >> 1 & 6) ^ (row << 1 & 4);
  return row * 32 + ((word / 4 ^ permutation) * 4 + word % 4);
}

// The first element of vector `index` of a tile that is not turned.
template <class E, Layout kLayout>
PLANQ_HD constexpr Place vector_of(unsigned index) {
  const unsigned across = index % 8 * 4 * kPerWord<E>;
  if constexpr (kStacked<E, kLayout>)
    return {index / 64 * 8 + index / 32 % 2, index % 32 * kPerWord<E>};
  if constexpr (kLayout == Layout::ColTuring)  // 32 lanes have half of a panel's 8 rows
    return {index / 64 * 8 + index % 4 * 2 + index / 32 % 2, index / 4 % 8 * 4};
  if constexpr (kLayout == Layout::ColAmpere) {
    const unsigned line = index / 8;
    return {line / 32 * 32 + outlier::panel_element(kLayout, line % 32 * outlier::kPanel).row,
            across};
  }
  return {index / 8, across};
}

// The vectors of a thread if the input is turned: four rows of the same columns, or the even and
// the odd rows of two groups of eight rows.
template <class E, Layout kLayout>
PLANQ_HD constexpr Place turned_vector_of(unsigned thread, unsigned i) {
  if constexpr (kStacked<E, kLayout>) {
    const unsigned pair = thread + i / 2 * kThreads;
    return {pair / 8 % 16 * 8 + i % 2, pair / 128 * 32 + pair % 8 * 4};
  }
  constexpr unsigned kAcross = kTileRows / (4 * kPerWord<E>);
  return {thread / kAcross * 4 + i, thread % kAcross * 4 * kPerWord<E>};
}

// Loads a thread's vectors of the tile at (row, column) of the frame, in the input's own rows.
template <class E, Layout kLayout, bool kTurned, bool kAligned>
PLANQ_HD void load_tile(const Side<const E>& side, std::int64_t row, std::int64_t column,
                        unsigned thread, Vector (&vectors)[kVectors]) {
  PLANQ_TILE_UNROLL
  for (unsigned i = 0; i < kVectors; ++i) {
    const Place place = kTurned ? turned_vector_of<E, kLayout>(thread, i)
                                : vector_of<E, kLayout>(thread + i * kThreads);
    vectors[i] = side.template load<kLayout, kAligned>(kTurned ? column : row,
                                                       kTurned ? row : column, place);
  }
}

PLANQ_HD void put_vector(const Vector& vector, std::uint32_t* to) {
  *reinterpret_cast<Vector*>(to) = vector;
}

// Stores words of eight rows and four columns of a turned ColTuring input. Each becomes two
// neighbouring words of a row of the frame.
PLANQ_HD void put_turned_stack(const Vector& even, const Vector& odd, Place place,
                               std::uint32_t* tile) {
  std::uint32_t first[4] = {even.word[0], odd.word[0], even.word[1], odd.word[1]};
  std::uint32_t second[4] = {even.word[2], odd.word[2], even.word[3], odd.word[3]};
  outlier::turn_bytes(first);
  outlier::turn_bytes(second);
  struct alignas(8) Both {
    std::uint32_t first, second;
  };
  PLANQ_TILE_UNROLL
  for (unsigned k = 0; k < 4; ++k)
    *reinterpret_cast<Both*>(tile + slot(place.column + k, place.row / 4)) = {first[k], second[k]};
}

// Transposes four rows of 32-bit elements, or of words of four 8-bit elements, and stores them.
template <class E>
PLANQ_HD void put_turned_rows(const Vector (&vectors)[kVectors], Place place, std::uint32_t* tile) {
  PLANQ_TILE_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    std::uint32_t words[4] = {vectors[0].word[i], vectors[1].word[i], vectors[2].word[i],
                              vectors[3].word[i]};
    if constexpr (sizeof(E) == 4) {
      put_vector({words[0], words[1], words[2], words[3]},
                 tile + slot(place.column + i, place.row));
    } else {
      outlier::turn_bytes(words);
      PLANQ_TILE_UNROLL
      for (unsigned k = 0; k < 4; ++k)
        tile[slot(place.column + 4 * i + k, place.row / 4)] = words[k];
    }
  }
}

// Stores the loaded vectors to their slots in shared memory, in the rows of the frame.
template <class E, Layout kLayout, bool kTurned>
PLANQ_HD void put_tile(const Vector (&vectors)[kVectors], unsigned thread, std::uint32_t* tile) {
  if constexpr (kTurned && kStacked<E, kLayout>) {
    PLANQ_TILE_UNROLL
    for (unsigned i = 0; i < kVectors; i += 2)
      put_turned_stack(vectors[i], vectors[i + 1], turned_vector_of<E, kLayout>(thread, i), tile);
  } else if constexpr (kTurned) {
    put_turned_rows<E>(vectors, turned_vector_of<E, kLayout>(thread, 0), tile);
  } else {
    PLANQ_TILE_UNROLL
    for (unsigned i = 0; i < kVectors; ++i) {
      const Place place = vector_of<E, kLayout>(thread + i * kThreads);
      if constexpr (kStacked<E, kLayout>) {
        PLANQ_TILE_UNROLL
        for (unsigned k = 0; k < 4; ++k)
          tile[slot(place.row + 2 * k, place.column / 4)] = vectors[i].word[k];
      } else {
        put_vector(vectors[i], tile + slot(place.row, place.column / kPerWord<E>));
      }
    }
  }
}

template <class E, Layout kLayout, bool kAligned>
PLANQ_HD void store_tile(const Side<E>& side, std::int64_t row, std::int64_t column,
                         unsigned thread, const std::uint32_t* tile) {
  PLANQ_TILE_UNROLL
  for (unsigned i = 0; i < kVectors; ++i) {
    const Place place = vector_of<E, kLayout>(thread + i * kThreads);
    Vector vector;
    if constexpr (kStacked<E, kLayout>) {
      PLANQ_TILE_UNROLL
      for (unsigned k = 0; k < 4; ++k)
        vector.word[k] = tile[slot(place.row + 2 * k, place.column / 4)];
    } else {
      vector = *reinterpret_cast<const Vector*>(tile + slot(place.row, place.column / kPerWord<E>));
    }
    side.template store<kLayout, kAligned>(row, column, place, vector);
  }
}

// Copies a tile without shared memory, in the output's order, if is_copy().
template <class E, Layout kFrom, Layout kTo>
PLANQ_HD void copy_tile(const Args<E>& args, std::int64_t row, std::int64_t column,
                        unsigned thread) {
  Vector vectors[kVectors];
  PLANQ_TILE_UNROLL
  for (unsigned i = 0; i < kVectors; ++i)
    vectors[i] = args.input.template load<kFrom, true>(row, column,
                                                       vector_of<E, kTo>(thread + i * kThreads));
  PLANQ_TILE_UNROLL
  for (unsigned i = 0; i < kVectors; ++i)
    args.output.template store<kTo, true>(row, column, vector_of<E, kTo>(thread + i * kThreads),
                                          vectors[i]);
}

// Whether one thread can make vectors of the output from the vectors that it loads. Four rows of
// the input, transposed, are words of ColTuring, and the words of eight columns form two vectors.
template <class E>
bool is_turned_to_stacks(const Args<E>& args, bool turned) {
  return turned && sizeof(E) == 1 && args.input.vectors && args.output.vectors &&
         args.input.lines.layout != Layout::ColTuring &&
         args.output.lines.layout == Layout::ColTuring;
}

// The four rows of the input that a thread transposes: eight threads load segments of 128 bytes,
// and four store segments of 64. The other way round is slower.
PLANQ_HD constexpr Place stacked_place(unsigned thread) {
  return {(thread % 4 + thread / 32 * 4) * 4, thread / 4 % 8 * 16};
}

// Transposes a tile without shared memory, if is_turned_to_stacks().
template <class E, Layout kFrom>
PLANQ_HD void turn_tile_to_stacks(const Args<E>& args, std::int64_t row, std::int64_t column,
                                  unsigned thread) {
  const Place from = stacked_place(thread);
  Vector vectors[kVectors], turned[kVectors];
  PLANQ_TILE_UNROLL
  for (unsigned i = 0; i < kVectors; ++i)
    vectors[i] = args.input.template load<kFrom, true>(column, row, {from.row + i, from.column});
  PLANQ_TILE_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    std::uint32_t words[4] = {vectors[0].word[i], vectors[1].word[i], vectors[2].word[i],
                              vectors[3].word[i]};
    outlier::turn_bytes(words);
    // Row 4 i + k of the frame is word 2 (i % 2) + k / 2 of its stack.
    PLANQ_TILE_UNROLL
    for (unsigned k = 0; k < 4; ++k) turned[i / 2 * 2 + k % 2].word[i % 2 * 2 + k / 2] = words[k];
  }
  PLANQ_TILE_UNROLL
  for (unsigned i = 0; i < kVectors; ++i)
    args.output.template store<Layout::ColTuring, true>(
        row, column, {from.column + i / 2 * 8 + i % 2, from.row}, turned[i]);
}

}  // namespace planq::transform_layout
