// The order of a reordered weight W of K rows and N columns.
//
// It is a sequence of lines of 128 bytes. A line holds a chunk of 64 rows of a few neighbouring
// columns: 2 of int8, 4 of int4. All chunks of these columns follow one another, then come the next
// columns. In a line every column has a span of 32-bit words, and a word holds the elements of one
// column whose rows row() gives, the lowest lane in the lowest bits. Elements are stored with their
// sign bit flipped.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"

namespace planq::mixed_dtype {

inline constexpr int kChunk = 64, kLineBytes = 128;

template <DType kDType>
struct Layout {
  static constexpr int kBits = bits_of(kDType);
  static constexpr int kLanes = 32 / kBits;       // elements of a word
  static constexpr int kPerByte = 8 / kBits;      // elements of a byte
  static constexpr int kWords = kChunk / kLanes;  // words of a span
  static constexpr int kSpanBytes = 4 * kWords;   // as many as the chunk has in the matrix
  static constexpr int kColumns = kLineBytes / kSpanBytes;
  static constexpr int kVectorElements = 16 / 4 * kLanes;
  static constexpr std::uint32_t kSigns = kBits == 8 ? 0x80808080u : 0x88888888u;
  static constexpr int kHalf = kLanes / 2;

  // The row, in its chunk, that a lane of a word of the span holds.
  PLANQ_HD static constexpr int row(int word, int lane) {
    return word / 4 * kVectorElements + word % 4 * 2 + lane % kHalf * 8 + lane / kHalf;
  }
  // The word and the lane that hold a row of the chunk.
  PLANQ_HD static constexpr int word(int row) { return row / kVectorElements * 4 + row / 2 % 4; }
  PLANQ_HD static constexpr int lane(int row) {
    return row % kVectorElements / 8 + row % 2 * kHalf;
  }
};

// Of the eight nibbles of a word, or of each word of a vector, swaps the second with the third and
// the sixth with the seventh.
template <class Words>
PLANQ_HD Words inner_nibbles_swapped(Words words) {
  const Words changed = (words ^ words >> 4) & 0x00F000F0u;
  return words ^ changed ^ changed << 4;
}

}  // namespace planq::mixed_dtype
