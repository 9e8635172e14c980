// 4-bit codes in the bytes of a word, all of them at once: two 4-bit codes share a packed byte, or
// each has a byte of its own. Words may be of any width.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"

namespace planq::math {

template <class Word>
inline constexpr Word kEveryByte = static_cast<Word>(static_cast<Word>(~Word{0}) / 0xFF);

// Bytes whose low and high nibbles are the low nibbles of `low` and of `high`.
template <class Word>
PLANQ_HD Word nibbles_joined(Word low, Word high) {
  constexpr Word kLow = static_cast<Word>(kEveryByte<Word> * 0x0F);
  return static_cast<Word>((low & kLow) | (high & kLow) << 4);
}
template <class Word>
PLANQ_HD Word low_nibbles(Word packed) {
  return static_cast<Word>(packed & kEveryByte<Word> * 0x0F);
}
template <class Word>
PLANQ_HD Word high_nibbles(Word packed) {
  return static_cast<Word>(packed >> 4 & kEveryByte<Word> * 0x0F);
}

// Packs each byte with its neighbour: the even bytes of the result hold two codes each, the odd
// ones are arbitrary.
template <class Word>
PLANQ_HD Word neighbours_joined(Word codes, NibbleOrder order) {
  const Word clean = low_nibbles(codes);
  return static_cast<Word>(order == NibbleOrder::LowFirst ? clean | clean >> 4
                                                          : clean << 4 | clean >> 8);
}
// The inverse: the even bytes of `packed` hold two codes each, the odd ones are 0.
template <class Word>
PLANQ_HD Word neighbours_split(Word packed, NibbleOrder order) {
  const Word low = low_nibbles(packed), high = high_nibbles(packed);
  return static_cast<Word>(order == NibbleOrder::LowFirst ? low | high << 8 : high | low << 8);
}

// Copies bit 3 of every byte, whose high nibble is 0, to the bits above it: two's complement of 4
// bits becomes that of 8.
template <class Word>
PLANQ_HD Word nibbles_extended(Word codes) {
  return static_cast<Word>(codes | (codes & kEveryByte<Word> * 0x08) * 0x1E);
}

}  // namespace planq::math
