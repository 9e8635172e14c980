// From blocks in shared memory to what tensor cores take: codes in the words that lanes give to
// mma.sync (see cuda/mma.cuh), and the scales and minima of sub-blocks.
//
// A lane reads four bytes of a block at a time, wherever they begin, and makes words of codes of
// them without a loop over codes. Signed codes are at the upper end of their bytes, so that they
// are a power of two larger than they should be: then one operation takes off the offset of all
// four. The start of the integer sums makes up for it: see start_of().
#pragma once

#include <cstdint>

#include "cuda/memory_access.cuh"
#include "ops/gguf/blocks.h"
#include "ops/gguf/linear_gguf/desc.h"

namespace planq::linear_gguf {

// A row of a span in shared memory. kAligned: it begins at an aligned vector, not anywhere.
template <bool kAligned>
class RowWords {
 public:
  // It begins `offset` bytes behind `words`.
  __device__ __forceinline__ RowWords(const std::uint32_t* words, int offset)
      : words_(words), offset_(static_cast<unsigned>(offset)) {}

  // Four bytes, of which the first is byte `at`, which the compiler knows, plus 4 `further`. Where
  // they are not known to be one aligned word, reads two.
  __device__ __forceinline__ std::uint32_t word(int at, int further = 0) const {
    const unsigned from = offset_ + (kAligned ? 0u : static_cast<unsigned>(at % 4));
    const std::uint32_t* const two = words_ + (static_cast<int>(from / 4) + further) + at / 4;
    if constexpr (kAligned)
      return at % 4 == 0 ? two[0] : __funnelshift_r(two[0], two[1], at % 4 * 8);
    else
      return __funnelshift_r(two[0], two[1], from % 4 * 8);
  }
  // Eight bytes, plus 8 `further`.
  __device__ __forceinline__ uint2 pair(int at, int further) const {
    if constexpr (kAligned)
      if (at % 8 == 0)
        return reinterpret_cast<const uint2*>(
            words_)[static_cast<int>(offset_ / 8) + further + at / 8];
    return make_uint2(word(at, 2 * further), word(at + 4, 2 * further));
  }
  __device__ __forceinline__ gguf::Bytes bytes(int at) const {
    return reinterpret_cast<gguf::Bytes>(words_) + (offset_ + static_cast<unsigned>(at));
  }

 private:
  const std::uint32_t* words_;
  unsigned offset_;
};

// The same by its address, of a span in few_rows.cuh. kAligned: it begins at a multiple of eight
// bytes, not anywhere. The bytes stay as they are as long as the address is used.
template <bool kAligned>
class SharedRow {
 public:
  __device__ __forceinline__ explicit SharedRow(cuda::SharedAddress address) : address_(address) {}

  __device__ __forceinline__ std::uint32_t word(int at, int further = 0) const {
    const cuda::SharedAddress from = address_ + static_cast<unsigned>(further * 4 + at);
    if constexpr (kAligned) {
      if (at % 4 == 0) return cuda::read_shared_word(from);
      const cuda::SharedAddress low = from - static_cast<unsigned>(at % 4);
      return __funnelshift_r(cuda::read_shared_word(low), cuda::read_shared_word(low + 4),
                             at % 4 * 8);
    }
    const cuda::SharedAddress low = from / 4 * 4;
    return __funnelshift_r(cuda::read_shared_word(low), cuda::read_shared_word(low + 4),
                           static_cast<unsigned>(from % 4 * 8));
  }
  __device__ __forceinline__ uint2 pair(int at, int further) const {
    if constexpr (kAligned)
      if (at % 8 == 0)
        return cuda::read_shared_words(address_ + static_cast<unsigned>(further * 8 + at));
    return make_uint2(word(at, 2 * further), word(at + 4, 2 * further));
  }
  // Two bytes. `at` is even.
  __device__ __forceinline__ std::uint32_t half_word(int at) const {
    const cuda::SharedAddress from = address_ + static_cast<unsigned>(at);
    if constexpr (kAligned) return cuda::read_shared_half(from);
    return cuda::read_shared_byte(from) | cuda::read_shared_byte(from + 1) << 8;
  }
  __device__ __forceinline__ gguf::Bytes bytes(int at) const {
    return static_cast<gguf::Bytes>(cuda::pointer_to_shared(address_ + static_cast<unsigned>(at)));
  }

 private:
  cuda::SharedAddress address_;
};

// (x & mask) ^ flip. The compiler makes two operations of it where both are constants.
__device__ __forceinline__ std::uint32_t and_xor(std::uint32_t x, std::uint32_t mask,
                                                 std::uint32_t flip) {
#if defined(__CUDA_ARCH__)
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(result) : "r"(x), "r"(mask), "r"(flip));
  return result;
#else
  return (x & mask) ^ flip;
#endif
}
// --- Codes ---------------------------------------------------------------------------------------

// Words that a lane has of a sub-block: of 32 elements, those of both rows, and the same of further
// 16 elements; of 16 elements, those of both rows. See multiply_onto().
template <class B>
using CodeWords = std::uint32_t[B::kSubBlock / 8];

// kHasNeighbours: of 32 elements of a row, a lane may have 8t ... 8t + 7, four in each word, in the
// place of 4t ... 4t + 3 and those 16 further.
template <bool kUnsigned_, bool kHasNeighbours_>
struct FragmentTraits {
  static constexpr bool kUnsigned = kUnsigned_, kHasNeighbours = kHasNeighbours_;
  static constexpr bool kGeneric = false;  // made code by code
  // Codes of sub-block i are 2^factor(i) times as large as they should be.
  static constexpr int factor(int) { return 0; }
};

// Of any type, code by code.
template <class B>
struct Fragments : FragmentTraits<false, false> {
  static constexpr bool kGeneric = true;
  template <bool kNeighbours, class Row>
  __device__ __forceinline__ static void load(const Row (&rows)[2], int t, int i,
                                              CodeWords<B>& words) {
#pragma unroll
    for (int half = 0; half < B::kSubBlock / 16; ++half) {
      const int first = i * B::kSubBlock + half * 16;
#pragma unroll
      for (int row = 0; row < 2; ++row)
        words[half * 2 + row] =
            codes(rows[row].bytes(first / B::kElements * B::kBytes), first % B::kElements + t * 4);
    }
  }

 private:
  __device__ __forceinline__ static std::uint32_t codes(gguf::Bytes block, int first) {
    std::uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      word |= static_cast<std::uint32_t>(B::code(block, first + i) & 0xFF) << 8 * i;
    return word;
  }
};

// A lane's eight of 32 bytes.
template <bool kNeighbours, class Row>
__device__ __forceinline__ uint2 eight_bytes(const Row& row, int at, int t) {
  return kNeighbours ? row.pair(at, t) : make_uint2(row.word(at, t), row.word(at + 16, t));
}

template <>
struct Fragments<gguf::Block<GgufType::Q8_0>> : FragmentTraits<false, true> {
  template <bool kNeighbours, class Row>
  __device__ __forceinline__ static void load(const Row (&rows)[2], int t, int i,
                                              std::uint32_t (&words)[4]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint2 both = eight_bytes<kNeighbours>(rows[row], 34 * i + 2, t);
      words[row] = both.x;
      words[row + 2] = both.y;
    }
  }
};

// The types of 32 elements in 16 bytes: kAt: the first of these; kBytes: of a block.
template <int kAt, int kBytes, class Row>
__device__ __forceinline__ std::uint32_t split_nibbles(const Row& row, int t, int i) {
  return row.word(kBytes * i + kAt, t);
}
// Four bits, the fifth ones of codes, each at bit 4 of its byte, or at bit 7.
__device__ __forceinline__ std::uint32_t at_bit_4(std::uint32_t four_bits) {
  return four_bits * 0x02040810u & 0x10101010u;
}
__device__ __forceinline__ std::uint32_t at_bit_7(std::uint32_t four_bits) {
  return four_bits * 0x10204080u & 0x80808080u;
}

template <>
struct Fragments<gguf::Block<GgufType::Q4_0>> : FragmentTraits<false, false> {
  static constexpr int factor(int) { return 4; }
  template <bool kNeighbours, class Row>
  __device__ __forceinline__ static void load(const Row (&rows)[2], int t, int i,
                                              std::uint32_t (&words)[4]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const std::uint32_t both = split_nibbles<2, 18>(rows[row], t, i);
      words[row] = and_xor(both << 4, 0xF0F0F0F0u, 0x80808080u);
      words[row + 2] = and_xor(both, 0xF0F0F0F0u, 0x80808080u);
    }
  }
};

template <>
struct Fragments<gguf::Block<GgufType::Q4_1>> : FragmentTraits<true, false> {
  template <bool kNeighbours, class Row>
  __device__ __forceinline__ static void load(const Row (&rows)[2], int t, int i,
                                              std::uint32_t (&words)[4]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const std::uint32_t both = split_nibbles<4, 20>(rows[row], t, i);
      words[row] = both & 0x0F0F0F0Fu;
      words[row + 2] = both >> 4 & 0x0F0F0F0Fu;
    }
  }
};

template <>
struct Fragments<gguf::Block<GgufType::Q5_0>> : FragmentTraits<false, false> {
  static constexpr int factor(int) { return 3; }
  template <bool kNeighbours, class Row>
  __device__ __forceinline__ static void load(const Row (&rows)[2], int t, int i,
                                              std::uint32_t (&words)[4]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const std::uint32_t both = split_nibbles<6, 22>(rows[row], t, i);
      const std::uint32_t fifth = rows[row].word(22 * i + 2) >> 4 * t;
      words[row] = (both << 3 & 0x78787878u) | (at_bit_7(fifth & 15u) ^ 0x80808080u);
      words[row + 2] = (both >> 1 & 0x78787878u) | (at_bit_7(fifth >> 16 & 15u) ^ 0x80808080u);
    }
  }
};

template <>
struct Fragments<gguf::Block<GgufType::Q5_1>> : FragmentTraits<true, false> {
  template <bool kNeighbours, class Row>
  __device__ __forceinline__ static void load(const Row (&rows)[2], int t, int i,
                                              std::uint32_t (&words)[4]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const std::uint32_t both = split_nibbles<8, 24>(rows[row], t, i);
      const std::uint32_t fifth = rows[row].word(24 * i + 4) >> 4 * t;
      words[row] = (both & 0x0F0F0F0Fu) | at_bit_4(fifth & 15u);
      words[row + 2] = (both >> 4 & 0x0F0F0F0Fu) | at_bit_4(fifth >> 16 & 15u);
    }
  }
};

// Two neighbouring sub-blocks share 32 bytes. The second one's nibbles stay where they are.
template <>
struct Fragments<gguf::Block<GgufType::Q4_K>> : FragmentTraits<true, true> {
  static constexpr int factor(int i) { return i % 2 * 4; }
  template <bool kNeighbours, class Row>
  __device__ __forceinline__ static void load(const Row (&rows)[2], int t, int i,
                                              std::uint32_t (&words)[4]) {
    const std::uint32_t mask = i % 2 == 0 ? 0x0F0F0F0Fu : 0xF0F0F0F0u;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint2 both = eight_bytes<kNeighbours>(rows[row], 16 + 32 * (i / 2), t);
      words[row] = both.x & mask;
      words[row + 2] = both.y & mask;
    }
  }
};

template <>
struct Fragments<gguf::Block<GgufType::Q5_K>> : FragmentTraits<true, true> {
  template <bool kNeighbours, class Row>
  __device__ __forceinline__ static void load(const Row (&rows)[2], int t, int i,
                                              std::uint32_t (&words)[4]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint2 both = eight_bytes<kNeighbours>(rows[row], 48 + 32 * (i / 2), t);
      const uint2 fifth = eight_bytes<kNeighbours>(rows[row], 16, t);
      words[row] = five_bits(both.x, fifth.x, i);
      words[row + 2] = five_bits(both.y, fifth.y, i);
    }
  }

 private:
  __device__ __forceinline__ static std::uint32_t five_bits(std::uint32_t both, std::uint32_t fifth,
                                                            int i) {
    const std::uint32_t high = i < 4 ? fifth << (4 - i % 4) : fifth >> i % 4;
    return ((i % 2 == 0 ? both : both >> 4) & 0x0F0F0F0Fu) | (high & 0x10101010u);
  }
};

template <>
struct Fragments<gguf::Block<GgufType::Q6_K>> : FragmentTraits<false, false> {
  static constexpr int factor(int) { return 2; }
  template <bool kNeighbours, class Row>
  __device__ __forceinline__ static void load(const Row (&rows)[2], int t, int i,
                                              std::uint32_t (&words)[2]) {
    // Of 128 elements, the quarter and its half.
    const int quarter = i % 8 / 2, half = i % 2 * 16;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const std::uint32_t low = rows[row].word(i / 8 * 64 + quarter % 2 * 32 + half, t);
      const std::uint32_t high = rows[row].word(128 + i / 8 * 32 + half, t) << (6 - 2 * quarter);
      words[row] = (quarter < 2 ? low << 2 : low >> 2) & 0x3C3C3C3Cu |
                   and_xor(high, 0xC0C0C0C0u, 0x80808080u);
    }
  }
};

// The bits of 1.5 * 2^(23 - factor), one of whose units is 2^-factor. Onto this, an integer sum of
// codes that are 2^factor times as large makes the bits of the number that is the sum of the codes
// larger: one subtraction, which is exact, and the sum is a float.
template <class B>
PLANQ_HD constexpr std::int32_t start_of(int i) {
  return 0x4B400000 - (Fragments<B>::factor(i) << 23);
}

// --- Scales --------------------------------------------------------------------------------------

// Sub-blocks of half a span.
template <class B>
inline constexpr int kHalfSubBlocks = kSpan / 2 / B::kSubBlock;
template <class B>
using HalfScales = float[kHalfSubBlocks<B>];

// An unsigned byte of a word as a float, plus 2^23.
__device__ __forceinline__ float byte_above(std::uint32_t word, unsigned i) {
  return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7440u + i));
}
inline constexpr float kAbove = 0x1p23f;

// The scales and minima of the first or the second half of a row's span.
template <class B>
struct Scales {
  template <class Row>
  __device__ __forceinline__ static void load(const Row& row, int half, HalfScales<B>& scales,
                                              HalfScales<B>& minima) {
#pragma unroll
    for (int i = 0; i < kHalfSubBlocks<B>; ++i) {
      const unsigned e = static_cast<unsigned>(half * (kSpan / 2) + i * B::kSubBlock);
      const gguf::Run<B> run(row.bytes(static_cast<int>(e / B::kElements) * B::kBytes),
                             static_cast<int>(e % B::kElements));
      scales[i] = run.scale;
      minima[i] = run.minimum;
    }
  }
};

__device__ __forceinline__ float half_of(std::uint32_t low) {
  return math::widened(math::Half{static_cast<std::uint16_t>(low)});
}

struct SixBitHalf {
  template <class Row>
  __device__ __forceinline__ static void load(const Row& row, int half, float (&scales)[4],
                                              float (&minima)[4]) {
    const uint2 first = row.pair(0, 0), second = row.pair(8, 0);
    const std::uint32_t both = first.x, low = first.y, middle = second.x, high = second.y;
    const std::uint32_t scale =
        half == 0 ? low & 0x3F3F3F3Fu : (high & 0x0F0F0F0Fu) | (low >> 2 & 0x30303030u);
    const std::uint32_t minimum =
        half == 0 ? middle & 0x3F3F3F3Fu : (high >> 4 & 0x0F0F0F0Fu) | (middle >> 2 & 0x30303030u);
    const float d = half_of(both), minus_m = -half_of(both >> 16);
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      scales[i] = d * (byte_above(scale, i) - kAbove);
      minima[i] = minus_m * (byte_above(minimum, i) - kAbove);
    }
  }
};
template <>
struct Scales<gguf::Block<GgufType::Q4_K>> : SixBitHalf {};
template <>
struct Scales<gguf::Block<GgufType::Q5_K>> : SixBitHalf {};

template <>
struct Scales<gguf::Block<GgufType::Q6_K>> {
  template <class Row>
  __device__ __forceinline__ static void load(const Row& row, int half, float (&scales)[8],
                                              float (&)[8]) {
    const float d = half_of(row.word(208));
#pragma unroll
    for (int four = 0; four < 2; ++four) {
      const std::uint32_t raised = row.word(192 + 4 * four, 2 * half) ^ 0x80808080u;
#pragma unroll
      for (unsigned i = 0; i < 4; ++i)
        scales[four * 4 + i] = d * (byte_above(raised, i) - (kAbove + 128));
    }
  }
};

// Those of sub-blocks 8h + 2t and the next of a row's span.
template <class B>
struct PairScales {
  template <class Row>
  __device__ __forceinline__ static void load(const Row& row, int h, int t, float (&scales)[2],
                                              float (&minima)[2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int e = (8 * h + 2 * t + j) * B::kSubBlock, block = e / B::kElements * B::kBytes;
      if constexpr (requires { B::kScaleAt; }) {
        scales[j] = half_of(row.half_word(block + B::kScaleAt));
        if constexpr (gguf::Run<B>::kHasMinimum)
          minima[j] = half_of(row.half_word(block + B::kScaleAt + 2));
      } else {
        const gguf::Run<B> run(row.bytes(block), e % B::kElements);
        scales[j] = run.scale;
        minima[j] = run.minimum;
      }
    }
  }
};

struct SixBitPair {
  template <class Row>
  __device__ __forceinline__ static void load(const Row& row, int, int t, float (&scales)[2],
                                              float (&minima)[2]) {
    const uint2 first = row.pair(0, 0), second = row.pair(8, 0);
    const std::uint32_t low = first.y, middle = second.x, high = second.y;
    const bool early = t < 2;
    const std::uint32_t of_scales =
        early ? low & 0x3F3F3F3Fu : (high & 0x0F0F0F0Fu) | (low >> 2 & 0x30303030u);
    const std::uint32_t of_minima =
        early ? middle & 0x3F3F3F3Fu : (high >> 4 & 0x0F0F0F0Fu) | (middle >> 2 & 0x30303030u);
    const float d = half_of(first.x), minus_m = -half_of(first.x >> 16);
#pragma unroll
    for (unsigned j = 0; j < 2; ++j) {
      const unsigned own = static_cast<unsigned>(t) % 2 * 2 + j;
      scales[j] = d * (byte_above(of_scales, own) - kAbove);
      minima[j] = minus_m * (byte_above(of_minima, own) - kAbove);
    }
  }
};
template <>
struct PairScales<gguf::Block<GgufType::Q4_K>> : SixBitPair {};
template <>
struct PairScales<gguf::Block<GgufType::Q5_K>> : SixBitPair {};

template <>
struct PairScales<gguf::Block<GgufType::Q6_K>> {
  template <class Row>
  __device__ __forceinline__ static void load(const Row& row, int h, int t, float (&scales)[2],
                                              float (&)[2]) {
    const float d = half_of(row.half_word(208));
    const std::uint32_t raised = row.half_word(192 + 8 * h + 2 * t) ^ 0x8080u;
#pragma unroll
    for (unsigned j = 0; j < 2; ++j) scales[j] = d * (byte_above(raised, j) - (kAbove + 128));
  }
};

}  // namespace planq::linear_gguf
