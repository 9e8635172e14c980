// How a lane makes numbers of mma.sync from the codes of a weight that it has in a register, before
// they are scaled: a few instructions for several codes.
//
// A lane has four terms of every step, of one column. Which of its terms is in which place of a
// register is free, as long as the input has the same order: a step adds its products in any order.
#pragma once

#include "cuda/mma.cuh"
#include "cuda/pairs.cuh"
#include "ops/linear/weight_only/pair_table.cuh"

namespace planq::linear {

enum class RegisterCodes {
  Nibbles,  // integers of 4 bits
  Bytes,    // integers of 8 bits
  Floats,   // floats of 8 bits
  Table     // 4-bit codes of a codebook, which look up two numbers at a time
};

constexpr bool has_bytes(RegisterCodes codes) {
  return codes == RegisterCodes::Bytes || codes == RegisterCodes::Floats;
}

// --- The order of terms --------------------------------------------------------------------------

// The first of four neighbouring terms that a lane has of a step. Bytes come from ldmatrix in
// order. Of nibbles, lanes get 8 neighbours of 32 terms, and swap halves with a lane that has
// those of the other step.
template <RegisterCodes kCodes>
PLANQ_HD int first_term(int lane) {
  return has_bytes(kCodes) ? 4 * lane : 8 * (lane & 1) + 4 * (lane >> 1);
}

// Four neighbouring terms of the input, in the order of the numbers. A byte of a table has
// neighbours. Integers of nibbles come from both bytes at once: their low nibbles, then their high.
template <RegisterCodes kCodes>
__device__ __forceinline__ uint2 paired(uint2 terms, bool high_first) {
  if (kCodes != RegisterCodes::Nibbles) return terms;
  const std::uint32_t even = __byte_perm(terms.x, terms.y, 0x5410);
  const std::uint32_t odd = __byte_perm(terms.x, terms.y, 0x7632);
  return high_first ? make_uint2(odd, even) : make_uint2(even, odd);
}

// --- Decoding ------------------------------------------------------------------------------------

namespace detail {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, math::Half>;

// (a & b) ^ c
__device__ __forceinline__ std::uint32_t masked_xor(std::uint32_t a, std::uint32_t b,
                                                    std::uint32_t c) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

// Exchanges two bytes with the lane that has the other step, so that a lane's bytes 0 and 2 belong
// to the first step of 32 terms, and bytes 1 and 3 to the second.
__device__ __forceinline__ std::uint32_t by_steps(std::uint32_t word, std::uint32_t selector) {
  return __byte_perm(word, __shfl_xor_sync(cuda::kAllLanes, word, 2), selector);
}
__device__ __forceinline__ std::uint32_t step_selector() {
  std::uint32_t selector = threadIdx.x & 2 ? 0x3726 : 0x5140;
  cuda::keep(selector);
  return selector;
}

}  // namespace detail

// The difference of two pairs of numbers, each rounded once.
template <class T>
__device__ __forceinline__ std::uint32_t pair_difference(std::uint32_t a, std::uint32_t b) {
  std::uint32_t difference;
  if constexpr (detail::kIsHalf<T>)
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
  else
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
  return difference;
}

template <class T, RegisterCodes kCodes>
class RegisterDecoder;

// 4-bit integers. A code becomes the last bits of a number, 128 or 1024 plus the code, from which
// that and the zero point are subtracted. Signed codes have their sign flipped: that adds 8.
template <class T>
class RegisterDecoder<T, RegisterCodes::Nibbles> {
 public:
  template <class Args>
  __device__ __forceinline__ RegisterDecoder(const Args& args, cuda::SharedAddress)
      : selector_(detail::step_selector()) {
    const std::uint32_t flip = args.codes.dtype == DType::Int4 ? 8 : 0;
    magic_ = (kMagic | flip) * 0x00010001u;
    least_ = kLeast + static_cast<int>(flip);
    unshifted_ = shifted(0);
    cuda::keep(magic_);
    cuda::keep(unshifted_);
  }

  __device__ __forceinline__ std::uint32_t unshifted() const { return unshifted_; }
  __device__ __forceinline__ std::uint32_t shifted(std::int32_t zero_point) const {
    const auto number = static_cast<float>(least_ + counted_zero_point(DType::UInt4, zero_point));
    return cuda::pair_of(number, number, T{});
  }
  // Eight codes of 32 terms: two registers of the first step, then two of the second.
  __device__ __forceinline__ void decode(std::uint32_t word, std::uint32_t shift,
                                         std::uint32_t (&numbers)[4]) const {
    const std::uint32_t bytes = detail::by_steps(word, selector_);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      numbers[i] =
          pair_difference<T>(detail::masked_xor(bytes >> 4 * i, 0x000F000F, magic_), shift);
  }

 private:
  static constexpr std::uint32_t kMagic = detail::kIsHalf<T> ? 0x6400 : 0x4300;
  static constexpr int kLeast = detail::kIsHalf<T> ? 1024 : 128;
  std::uint32_t selector_, magic_, unshifted_;
  int least_;
};

// 8-bit integers, likewise. Numbers of bfloat16 have too few bits, and are made by float32.
template <class T>
class RegisterDecoder<T, RegisterCodes::Bytes> {
 public:
  template <class Args>
  __device__ __forceinline__ RegisterDecoder(const Args& args, cuda::SharedAddress) {
    const bool is_signed = args.codes.dtype == DType::Int8;
    flips_ = is_signed ? 0x80808080 : 0;
    least_ = (detail::kIsHalf<T> ? 1024 : 1 << 23) + (is_signed ? 128 : 0);
    unshifted_ = shifted(0);
    cuda::keep(flips_);
    cuda::keep(unshifted_);
  }

  __device__ __forceinline__ std::uint32_t unshifted() const { return unshifted_; }
  __device__ __forceinline__ std::uint32_t shifted(std::int32_t zero_point) const {
    const auto number = static_cast<float>(least_ + counted_zero_point(DType::UInt8, zero_point));
    return detail::kIsHalf<T> ? cuda::pair_of(number, number, T{}) : __float_as_uint(number);
  }
  // The first two codes of a word, or with `upper` 1 the others.
  __device__ __forceinline__ std::uint32_t pair(std::uint32_t word, std::uint32_t upper,
                                                std::uint32_t shift) const {
    const std::uint32_t codes = word ^ flips_;
    if constexpr (detail::kIsHalf<T>)
      return pair_difference<T>(__byte_perm(codes, 0x64646464, 0x4140 + upper * 0x0202), shift);
    const float own = __uint_as_float(shift);
    const auto number = [&](std::uint32_t selector) {
      return __uint_as_float(__byte_perm(codes, 0x4B000000, selector + upper * 2)) - own;
    };
    return cuda::pair_of(number(0x7440), number(0x7441), T{});
  }
  // Four codes of each of two steps: two registers of the first, then two of the second.
  __device__ __forceinline__ void decode(std::uint32_t first, std::uint32_t second,
                                         std::uint32_t shift, std::uint32_t (&numbers)[4]) const {
    decode_step(first ^ flips_, shift, numbers[0], numbers[1]);
    decode_step(second ^ flips_, shift, numbers[2], numbers[3]);
  }

 private:
  __device__ __forceinline__ void decode_step(std::uint32_t word, std::uint32_t shift,
                                              std::uint32_t& low, std::uint32_t& high) const {
    if constexpr (detail::kIsHalf<T>) {
      low = pair_difference<T>(__byte_perm(word, 0x64646464, 0x4140), shift);
      high = pair_difference<T>(__byte_perm(word, 0x64646464, 0x4342), shift);
    } else {
      const float own = __uint_as_float(shift);
      const auto number = [&](int i) {
        return __uint_as_float(__byte_perm(word, 0x4B000000, 0x7440 | i)) - own;
      };
      low = cuda::pair_of(number(0), number(1), T{});
      high = cuda::pair_of(number(2), number(3), T{});
    }
  }

  std::uint32_t flips_, unshifted_;
  int least_;
};

// Floats of 8 bits, which both 16-bit types hold exactly.
template <class T>
class RegisterDecoder<T, RegisterCodes::Floats> {
 public:
  template <class Args>
  __device__ __forceinline__ RegisterDecoder(const Args& args, cuda::SharedAddress)
      : is_e4m3_(args.codes.dtype == DType::Float8E4M3FN) {}

  __device__ __forceinline__ std::uint32_t unshifted() const { return 0; }
  // The first two codes of a word, or with `upper` 1 the others.
  __device__ __forceinline__ std::uint32_t pair(std::uint32_t word, std::uint32_t upper,
                                                std::uint32_t) const {
    const std::uint32_t halves = half_pair(word >> 16 * upper);
    if constexpr (detail::kIsHalf<T>) return halves;
    return cuda::pair_of(cuda::of_pair<math::Half>(halves, 0), cuda::of_pair<math::Half>(halves, 1),
                         T{});
  }
  // Four codes of each of two steps: two registers of the first, then two of the second.
  __device__ __forceinline__ void decode(std::uint32_t first, std::uint32_t second, std::uint32_t,
                                         std::uint32_t (&numbers)[4]) const {
    numbers[0] = pair(first, 0, 0);
    numbers[1] = pair(first, 1, 0);
    numbers[2] = pair(second, 0, 0);
    numbers[3] = pair(second, 1, 0);
  }

 private:
  // Two codes to float16. A code of float8_e5m2 is the upper byte of one.
  __device__ __forceinline__ std::uint32_t half_pair(std::uint32_t codes) const {
    if (!is_e4m3_) return __byte_perm(codes, 0, 0x1404);
    std::uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<std::uint16_t>(codes)));
    return pair;
  }

  bool is_e4m3_;
};

// Codes of a codebook: a byte looks up its two numbers. Each lane has a copy of the table, so that
// lanes never meet in a bank.
template <class T>
class RegisterDecoder<T, RegisterCodes::Table> {
 public:
  template <class Args>
  __device__ __forceinline__ RegisterDecoder(const Args& args, cuda::SharedAddress table)
      : selector_(detail::step_selector()),
        own_(table + threadIdx.x % cuda::kWarp * 4),
        pitch_(args.table_pitch) {}

  __device__ __forceinline__ std::uint32_t unshifted() const { return 0; }
  __device__ __forceinline__ void decode(std::uint32_t word, std::uint32_t,
                                         std::uint32_t (&numbers)[4]) const {
    const std::uint32_t bytes = detail::by_steps(word, selector_);
    numbers[0] = at(__byte_perm(bytes, 0, 0x4440));
    numbers[1] = at(__byte_perm(bytes, 0, 0x4442));
    numbers[2] = at(__byte_perm(bytes, 0, 0x4441));
    numbers[3] = at(__byte_perm(bytes, 0, 0x4443));
  }

 private:
  // The multiplication has a pipe of its own; a shift would take the one of everything else.
  __device__ __forceinline__ std::uint32_t at(std::uint32_t byte) const {
    std::uint32_t address;
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(address) : "r"(byte), "r"(pitch_), "r"(own_));
    return cuda::load_shared_word(address);
  }

  std::uint32_t selector_;
  cuda::SharedAddress own_;
  std::uint32_t pitch_;
};

inline constexpr int kPairPitch = cuda::kWarp * 4;  // bytes of an entry, with its copies
inline constexpr int kPairBytes = 256 * kPairPitch;

// Fills the table of RegisterCodes::Table. Called by all threads of a block, before a barrier.
template <class T, int kWarps>
__device__ __forceinline__ void fill_pairs(const CodesArgs& args, cuda::SharedAddress table) {
  const bool high_first = args.codes.nibble_order == NibbleOrder::HighFirst;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll 1
  for (int high = static_cast<int>(threadIdx.x) / cuda::kWarp; high < 16; high += kWarps) {
    const float of_high = value_of(args, high);
#pragma unroll
    for (int low = 0; low < 16; ++low) {
      const float of_low = value_of(args, low);
      cuda::store_shared(
          table + (high * 16 + low) * kPairPitch + lane * 4,
          high_first ? cuda::pair_of(of_high, of_low, T{}) : cuda::pair_of(of_low, of_high, T{}));
    }
  }
}

// --- The order of tensor cores -------------------------------------------------------------------

// The same for codes that stay in shared memory, row after row, until lanes want their own. With
// these decoders, a quad of lanes has neighbouring terms in the order of a tensor core's registers,
// so the input needs no order of its own. `row`: the address of the codes of a column in a slice of
// 128 terms. Chunks of 16 bytes are swizzled as TMA has them in a box of kRowBytes.

// 4-bit codes: integers, or codes of a table. A step is 8 bytes, of which a lane has two, one of
// each word. kHighFirst: of two integers in a byte, the upper one comes first; a table knows.
template <class T, RegisterCodes kCodes, bool kHighFirst>
class NibbleLanes {
 public:
  static constexpr int kRowBytes = 64;

  template <class Args>
  __device__ __forceinline__ NibbleLanes(const Args& args, cuda::SharedAddress table)
      : own_(table + threadIdx.x % cuda::kWarp * 4),
        pitch_(args.table_pitch),
        selector_(kHighFirst ? 0x0444 | threadIdx.x % 4 << 12 : 0x4440 | threadIdx.x % 4) {
    const std::uint32_t flip = args.codes.dtype == DType::Int4 ? 8 : 0;
    magic_ = (kMagic | flip) * 0x00010001u;
    least_ = kLeast + static_cast<int>(flip);
    unshifted_ = shifted(0);
    cuda::keep(selector_);
  }
  static __device__ __forceinline__ int swizzle(int column) { return column / 2 % 4 * 16; }
  __device__ __forceinline__ std::uint32_t unshifted() const { return unshifted_; }
  __device__ __forceinline__ std::uint32_t shifted(std::int32_t zero_point) const {
    const auto number = static_cast<float>(least_ + counted_zero_point(DType::UInt4, zero_point));
    return cuda::pair_of(number, number, T{});
  }
  // A lane's first two terms of a step, and its other two.
  __device__ __forceinline__ uint2 step(cuda::SharedAddress row, int step,
                                        std::uint32_t shift) const {
    const uint2 words = cuda::load_shared_words((row ^ step / 2 * 16) + step % 2 * 8);
    return make_uint2(pair(words.x, shift), pair(words.y, shift));
  }

 private:
  static constexpr std::uint32_t kMagic = detail::kIsHalf<T> ? 0x6400 : 0x4300;
  static constexpr int kLeast = detail::kIsHalf<T> ? 1024 : 128;

  // Two numbers of the lane's byte of a word. Of a table: the multiplication has a pipe of its own;
  // a shift would take the one of everything else. Of integers: it takes the second code to where
  // the second number has its last bits, and the first one there, too, where it is the upper one.
  __device__ __forceinline__ std::uint32_t pair(std::uint32_t word, std::uint32_t shift) const {
    const std::uint32_t byte = __byte_perm(word, 0, selector_);
    std::uint32_t product;
    if constexpr (kCodes == RegisterCodes::Table) {
      asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(product) : "r"(byte), "r"(pitch_), "r"(own_));
      return cuda::load_shared_word(product);
    }
    if constexpr (kHighFirst)
      asm("mul.hi.u32 %0, %1, %2;" : "=r"(product) : "r"(byte), "r"(0x01000010));
    else
      asm("mul.lo.u32 %0, %1, %2;" : "=r"(product) : "r"(byte), "r"(0x1001));
    return pair_difference<T>(detail::masked_xor(product, 0x000F000F, magic_), shift);
  }

  cuda::SharedAddress own_;
  std::uint32_t pitch_, selector_, magic_, unshifted_;
  int least_;
};

// 8-bit codes: integers, or floats. A step is 16 bytes, of which a lane has four, in two words.
template <class T, RegisterCodes kCodes>
class ByteLanes {
 public:
  static constexpr int kRowBytes = 128;

  template <class Args>
  __device__ __forceinline__ ByteLanes(const Args& args, cuda::SharedAddress)
      : decoder_(args, 0), own_(threadIdx.x % 4 / 2 * 4), upper_(threadIdx.x % 2) {}
  static __device__ __forceinline__ int swizzle(int column) { return column % 8 * 16; }
  __device__ __forceinline__ std::uint32_t unshifted() const { return decoder_.unshifted(); }
  __device__ __forceinline__ std::uint32_t shifted(std::int32_t zero_point) const {
    return decoder_.shifted(zero_point);
  }
  // A lane's first two terms of a step, and its other two.
  __device__ __forceinline__ uint2 step(cuda::SharedAddress row, int step,
                                        std::uint32_t shift) const {
    const cuda::SharedAddress at = (row ^ step * 16) + own_;
    return make_uint2(decoder_.pair(cuda::load_shared_word(at), upper_, shift),
                      decoder_.pair(cuda::load_shared_word(at + 8), upper_, shift));
  }

 private:
  RegisterDecoder<T, kCodes> decoder_;
  std::uint32_t own_, upper_;
};

}  // namespace planq::linear
