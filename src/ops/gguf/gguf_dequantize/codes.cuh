// Codes of blocks in shared memory, four neighbours in the bytes of a word.
//
// Blocks begin at any byte. Codes are read in words, wherever these begin, and no loop goes over
// codes. They are kOffset above what they should be, so that they have no signs.
#pragma once

#include <cstdint>

#include "cuda/memory_access.cuh"
#include "ops/gguf/blocks.h"

namespace planq::gguf_dequantize {

// A block.
class SharedBlock {
 public:
  // It begins `offset` bytes behind `words`.
  __device__ __forceinline__ SharedBlock(const std::uint32_t* words, unsigned offset)
      : words_(words), offset_(offset) {}

  // Words that follow each other, from a byte on. Reads one more.
  template <int kWords>
  __device__ __forceinline__ void load(unsigned at, std::uint32_t (&words)[kWords]) const {
    const unsigned from = offset_ + at;
    const std::uint32_t* const own = words_ + from / 4;
    std::uint32_t low = own[0];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const std::uint32_t high = own[i + 1];
      words[i] = __funnelshift_r(low, high, from * 8);
      low = high;
    }
  }
  __device__ __forceinline__ std::uint32_t word(unsigned at) const {
    std::uint32_t words[1];
    load(at, words);
    return words[0];
  }
  __device__ __forceinline__ std::uint32_t byte(unsigned at) const { return bytes()[at]; }
  __device__ __forceinline__ gguf::Bytes bytes() const {
    return reinterpret_cast<gguf::Bytes>(words_) + offset_;
  }

 private:
  const std::uint32_t* words_;
  unsigned offset_;
};

// --- Parts of words ------------------------------------------------------------------------------

// Of words in memory those bits of each byte that begin at a bit and are kBits.
template <int kBits, int kWords>
__device__ __forceinline__ void load_bits(const SharedBlock& block, unsigned at, unsigned first,
                                          std::uint32_t (&words)[kWords]) {
  block.load(at, words);
#pragma unroll
  for (std::uint32_t& word : words) word = word >> first & 0x01010101u * ((1u << kBits) - 1);
}
// Of 256 elements, the codes of two bits that lie in 64 bytes: see gguf::split_pair().
template <int kWords>
__device__ __forceinline__ void load_pairs(const SharedBlock& block, unsigned at, unsigned e,
                                           std::uint32_t (&words)[kWords]) {
  load_bits<2>(block, at + e / 128 * 32 + e % 32, e / 32 % 4 * 2, words);
}
// Four bits, each as the bit kBit of its byte.
template <int kBit>
__device__ __forceinline__ std::uint32_t spread(std::uint32_t four_bits) {
  return ((four_bits & 15) * 0x00204081u & 0x01010101u) << kBit;
}
// Four bytes of a table, of numbers and what they are raised by.
template <int (*kNumber)(int), int kAbove>
constexpr std::uint32_t table_word(int i) {
  std::uint32_t word = 0;
  for (int k = 0; k < 4; ++k)
    word |= static_cast<std::uint32_t>(kNumber(4 * i + k) + kAbove) << 8 * k;
  return word;
}
// The numbers at the places in the bytes of a word, of which there are sixteen.
template <int (*kNumber)(int), int kAbove>
__device__ __forceinline__ std::uint32_t looked_up(std::uint32_t places) {
  constexpr std::uint32_t kTable[] = {
      table_word<kNumber, kAbove>(0), table_word<kNumber, kAbove>(1),
      table_word<kNumber, kAbove>(2), table_word<kNumber, kAbove>(3)};
  const std::uint32_t own = places & 0x07070707u;
  const std::uint32_t selectors = __byte_perm(own | own >> 4, 0, 0x4420);
  const std::uint32_t low = __byte_perm(kTable[0], kTable[1], selectors);
  const std::uint32_t high = __byte_perm(kTable[2], kTable[3], selectors);
  const std::uint32_t upper = (places >> 3 & 0x01010101u) * 255;
  return low ^ ((low ^ high) & upper);
}

// --- Types ---------------------------------------------------------------------------------------

// Loads 4 kWords neighbours, of which the first is a multiple of as many.
template <class B>
struct Codes;

// Of a type with a grid, eight at once.
template <gguf::HasEights B>
struct Codes<B> {
  static constexpr int kOffset = 128;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
    const std::uint64_t eight = B::eight(block.bytes(), static_cast<int>(e / 8));
    const std::uint32_t both[] = {static_cast<std::uint32_t>(eight),
                                  static_cast<std::uint32_t>(eight >> 32)};
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      words[i] = (kWords == 2 ? both[i] : e / 4 % 2 ? both[1] : both[0]) ^ 0x80808080u;
  }
};

// Signed bytes from kAt on.
template <int kAt>
struct SignedBytes {
  static constexpr int kOffset = 128;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
    block.load(kAt + e, words);
#pragma unroll
    for (std::uint32_t& word : words) word ^= 0x80808080u;
  }
};
template <>
struct Codes<gguf::Block<GgufType::Q8_0>> : SignedBytes<2> {};
template <>
struct Codes<gguf::Block<GgufType::Q8_1>> : SignedBytes<4> {};
template <>
struct Codes<gguf::Block<GgufType::Q8_K>> : SignedBytes<4> {};

// Nibbles from kAt on: the lower ones of kBytes bytes, then the upper ones, and so on.
template <int kAt, int kBytes, int kAbove>
struct Nibbles {
  static constexpr int kOffset = kAbove;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
    load_bits<4>(block, kAt + e / (2 * kBytes) * kBytes + e % kBytes, e / kBytes % 2 * 4, words);
  }
};
template <>
struct Codes<gguf::Block<GgufType::Q4_0>> : Nibbles<2, 16, 8> {};
template <>
struct Codes<gguf::Block<GgufType::Q4_1>> : Nibbles<4, 16, 0> {};
template <>
struct Codes<gguf::Block<GgufType::Q4_K>> : Nibbles<16, 32, 0> {};

// The same, as places in a table.
template <int kAt, int kBytes, int (*kNumber)(int), int kAbove>
struct TableNibbles {
  static constexpr int kOffset = kAbove;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
    Nibbles<kAt, kBytes, 0>::load(block, e, words);
#pragma unroll
    for (std::uint32_t& word : words) word = looked_up<kNumber, kAbove>(word);
  }
};
template <>
struct Codes<gguf::Block<GgufType::Iq4Nl>> : TableNibbles<2, 16, gguf::non_linear, 128> {};
template <>
struct Codes<gguf::Block<GgufType::Iq4Xs>> : TableNibbles<8, 16, gguf::non_linear, 128> {};
template <>
struct Codes<gguf::Block<GgufType::Mxfp4>> : TableNibbles<1, 16, gguf::twice_e2m1, 12> {};
template <>
struct Codes<gguf::Block<GgufType::Nvfp4>> : TableNibbles<4, 8, gguf::twice_e2m1, 12> {};

// Nibbles from kAt on, and the fifth bits in the word before.
template <int kAt, int kAbove>
struct FiveBits {
  static constexpr int kOffset = kAbove;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
    Nibbles<kAt, 16, 0>::load(block, e, words);
    const std::uint32_t fifth = block.word(kAt - 4) >> e;
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] |= spread<4>(fifth >> 4 * i);
  }
};
template <>
struct Codes<gguf::Block<GgufType::Q5_0>> : FiveBits<6, 16> {};
template <>
struct Codes<gguf::Block<GgufType::Q5_1>> : FiveBits<8, 0> {};

template <>
struct Codes<gguf::Block<GgufType::Q2_K>> {
  static constexpr int kOffset = 0;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
    load_pairs(block, 16, e, words);
  }
};

template <>
struct Codes<gguf::Block<GgufType::Q3_K>> {
  static constexpr int kOffset = 4;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
    std::uint32_t third[kWords];
    load_pairs(block, 32, e, words);
    load_bits<1>(block, e % 32, e / 32, third);
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] |= third[i] << 2;
  }
};

template <>
struct Codes<gguf::Block<GgufType::Q5_K>> {
  static constexpr int kOffset = 0;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
    std::uint32_t fifth[kWords];
    Nibbles<48, 32, 0>::load(block, e, words);
    load_bits<1>(block, 16 + e % 32, e / 32, fifth);
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] |= fifth[i] << 4;
  }
};

template <>
struct Codes<gguf::Block<GgufType::Q6_K>> {
  static constexpr int kOffset = 32;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
    std::uint32_t high[kWords];
    Nibbles<0, 64, 0>::load(block, e, words);
    load_pairs(block, 128, e, high);
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] |= high[i] << 4;
  }
};

// Digits to base 3 of bytes that are fractions of 256: see the numerics.
template <>
struct Codes<gguf::Block<GgufType::Tq1_0>> {
  static constexpr int kOffset = 1;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = four(block, e + 4 * i);
  }

 private:
  __device__ __forceinline__ static std::uint32_t four(const SharedBlock& block, unsigned e) {
    if (e < 160) return digits(block.word(e % 32), e / 32);
    if (e < 240) return digits(block.word(32 + e % 16), (e - 160) / 16);
    return digits(block.word(48), (e - 240) / 4);
  }
  __device__ __forceinline__ static std::uint32_t digits(std::uint32_t bytes, unsigned place) {
    const std::uint32_t power = place == 4 ? 81 : 0x1B090301u >> 8 * place & 255;
    const std::uint32_t even = (bytes & 0x00FF00FFu) * power & 0x00FF00FFu;
    const std::uint32_t odd = (bytes >> 8 & 0x00FF00FFu) * power & 0x00FF00FFu;
    return (even * 3 >> 8 & 0x00030003u) | (odd * 3 & 0x03000300u);
  }
};

template <>
struct Codes<gguf::Block<GgufType::Tq2_0>> {
  static constexpr int kOffset = 1;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
    load_pairs(block, 0, e, words);
  }
};

template <>
struct Codes<gguf::Block<GgufType::Q1_0>> {
  static constexpr int kOffset = 1;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
    const std::uint32_t bits = block.byte(2 + e / 8) >> e % 8;
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = spread<1>(bits >> 4 * i);
  }
};

template <>
struct Codes<gguf::Block<GgufType::Q2_0>> {
  static constexpr int kOffset = 1;
  template <int kWords>
  __device__ __forceinline__ static void load(const SharedBlock& block, unsigned e,
                                              std::uint32_t (&words)[kWords]) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const std::uint32_t pairs = block.byte(2 + e / 4 + i);
      const std::uint32_t nibbles = (pairs | pairs << 12) & 0x000F000Fu;
      words[i] = (nibbles | nibbles << 6) & 0x03030303u;
    }
  }
};

}  // namespace planq::gguf_dequantize
