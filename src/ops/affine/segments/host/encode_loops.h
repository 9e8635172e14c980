// The loops that encode measured segments, vectorised by the compiler. No include guard: see
// instruction_sets.h.
//
// Rules that keep the bits: every floating-point operation is one that affine/scale.h makes, in its
// order, except for the exact rewritings that are argued beside them.

#include "ops/affine/ranges/loops.h"

namespace planq::host::PLANQ_LEVEL {

using math::Bfloat16;
using math::bit_cast;
using math::Half;
using math::Ieee;

// ---- from keys to values -----------------------------------------------------------------------

// The value with these bits, for finite ones. A half moves its exponent bias by a multiplication
// that is exact, subnormals included.
inline float finite(Half x) {
  const std::int32_t wide = static_cast<std::int16_t>(x.bits);
  return bit_cast<float>((wide << 13) & static_cast<std::int32_t>(0x8FFFE000u)) *
         5.192296858534828e33f;
}
inline float finite(Bfloat16 x) { return math::widen(x); }
inline float finite(float x) { return x; }
inline double finite(double x) { return x; }

template <class T, bool kSigns>
inline math::Compute<T> value_of(Key<T> key) {
  if constexpr (kSigns) key ^= (key >> (sizeof(key) * 8 - 1)) & kMagnitude<T>;
  return finite(bit_cast<T>(key));
}

// Where there was no element, keys are those of 0. The values of special segments have no meaning.
template <class T, bool kSigns>
void key_values(const KeyRanges<Key<T>>& ranges, std::int64_t count,
                EncodedBatch<math::Compute<T>>& batch) {
  using C = math::Compute<T>;
  using K = Key<T>;
  const K* __restrict low = ranges.low;
  const K* __restrict high = ranges.high;
  const bool* __restrict special = ranges.special;
  EncodedBatch<C>* __restrict b = &batch;
  for (std::int64_t i = 0; i < count; ++i) {
    const K none = kSigns ? -(low[i] > high[i]) : -(high[i] < 0);
    if constexpr (kSigns) b->low[i] = value_of<T, kSigns>(low[i] & ~none);
    b->high[i] = value_of<T, kSigns>(high[i] & ~none);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const bool above = high[i] >= kInfinityKey<T>;
    const bool below = kSigns && low[i] <= static_cast<K>(~kInfinityKey<T>);
    b->special[i] = special[i] | above | below;
  }
}

// ---- from values to codes ----------------------------------------------------------------------

// fl(x / scale) or fl(x * inverse). With FMA and inverse = fl(1 / scale), one correction makes the
// product the correctly rounded quotient. Before its last rounding it is within 2^-21 units in the
// last place of x / scale, so it could only go wrong where x / scale comes that close to a midpoint
// of two floats; those pairs of significands have all been tried, and none does. That holds while
// nothing overflows or underflows, and is_exact() admits only scales for which nothing does unless
// the quotient is below 2^-38: that becomes a zero of the right sign all the same.
template <bool kDivide, class C>
inline C quotient(C x, C scale, C inverse) {
  if constexpr (!kDivide) {
    return x * inverse;
  } else if constexpr (PLANQ_FMA && std::is_same_v<C, float>) {
    const C near = x * inverse;
    const C excess = __builtin_fmaf(near, scale, -x);
    return __builtin_fmaf(excess, -inverse, near);
  } else {
    return x / scale;
  }
}

// The low byte is the code, less the zero point.
template <class Code, bool kDivide, class C>
inline typename Ieee<C>::Bits code(C x, C scale, C inverse, C low, C high) {
  return Code::of(math::clamp(quotient<kDivide>(x, scale, inverse), low, high));
}
inline std::uint8_t add(std::uint8_t code, std::uint8_t zero_code) {
  return static_cast<std::uint8_t>(code + zero_code);
}

// Stores a block past the caches; `to` is aligned to it.
inline void stream_block(std::uint8_t* to, const std::uint8_t* block) {
#if PLANQ_SIMD_X86
  for (int part = 0; part < kBlock; part += PLANQ_VECTOR_BYTES) {
#if PLANQ_VECTOR_BYTES == 64
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + part), _mm512_loadu_si512(block + part));
#elif PLANQ_VECTOR_BYTES == 32
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + part),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + part)));
#else
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + part),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + part)));
#endif
  }
#else
  std::memcpy(to, block, kBlock);
#endif
}

inline void store_block(std::uint8_t* to, const std::uint8_t* block, bool stream) {
  if (stream) {
    stream_block(to, block);
  } else {
    std::memcpy(to, block, kBlock);
  }
}

template <class C>
struct Constants {
  C scale, inverse, low, high;
  std::uint8_t zero_code;
};

template <class T, class Code, bool kDivide, class C>
inline void encode_block(const T* __restrict x, std::uint8_t* __restrict codes,
                         const Constants<C>& k) {
  for (int j = 0; j < kBlock; ++j)
    codes[j] = add(static_cast<std::uint8_t>(
                       code<Code, kDivide>(finite(x[j]), k.scale, k.inverse, k.low, k.high)),
                   k.zero_code);
}

template <class Bits>
inline void narrow_small_block(const Bits* wide, std::uint8_t* codes) {
#if PLANQ_SIMD_X86 && PLANQ_VECTOR_BYTES == 64
  if constexpr (sizeof(Bits) == 4) {
    for (int j = 0; j < kSmallBlock; j += 8) {
      const auto half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(wide + j));
      _mm256_mask_cvtepi32_storeu_epi8(codes + j, 0xFF, half);
    }
    return;
  }
#endif
  for (int j = 0; j < kSmallBlock; ++j) codes[j] = static_cast<std::uint8_t>(wide[j]);
}

// Compilers choose vectors by the narrowest type in a loop, which for so few codes would be short
// ones; so the narrowing has a loop of its own, kept apart from the first by the barrier.
template <class T, class Code, bool kDivide, class C>
inline void encode_small_block(const T* __restrict x, std::uint8_t* __restrict codes,
                               const Constants<C>& k) {
  typename Ieee<C>::Bits wide[kSmallBlock];
  for (int j = 0; j < kSmallBlock; ++j)
    wide[j] = code<Code, kDivide>(finite(x[j]), k.scale, k.inverse, k.low, k.high) + k.zero_code;
  __asm__ __volatile__("" : "+m"(wide));
  narrow_small_block(wide, codes);
}

// A line that does not end on a whole block redoes the last one at its end, with the same codes.
template <class T, class Code, bool kDivide, class C>
void encode_line(const T* __restrict x, std::int64_t n, std::uint8_t* __restrict codes,
                 CodeMemory memory, const Constants<C>& constants) {
  const Constants<C> k = constants;
  if (n < kSmallBlock) {
    for (std::int64_t i = 0; i < n; ++i)
      codes[i] = add(static_cast<std::uint8_t>(
                         code<Code, kDivide>(finite(x[i]), k.scale, k.inverse, k.low, k.high)),
                     k.zero_code);
    return;
  }
  std::int64_t i = 0;
  const bool stream = memory.stream && n >= 2 * kBlock;
  if (stream) {
    encode_block<T, Code, kDivide>(x, codes, k);
    i = kBlock - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(codes) % kBlock);
  }
  for (; i + kBlock <= n; i += kBlock) {
    prefetch_block(reinterpret_cast<const char*>(x + i) + memory.ahead, kBlock * sizeof(T));
    alignas(kBlock) std::uint8_t block[kBlock];
    encode_block<T, Code, kDivide>(x + i, block, k);
    store_block(codes + i, block, stream);
  }
  for (; i + kSmallBlock <= n; i += kSmallBlock)
    encode_small_block<T, Code, kDivide>(x + i, codes + i, k);
  if (i < n) encode_small_block<T, Code, kDivide>(x + n - kSmallBlock, codes + n - kSmallBlock, k);
}

// Constants of consecutive columns.
template <class C>
struct ColumnConstants {
  const C *scale, *inverse, *low, *high;
  const std::int32_t* zero_point;
  const std::uint8_t* zero_code;
};

template <class C>
inline ColumnConstants<C> constants_at(const EncodedBatch<C>& s, std::int64_t j) {
  return {s.scale + j, s.inverse + j, s.low + j, s.high + j, s.zero_point + j, s.zero_code + j};
}

template <class T, class Code, bool kDivide, class C>
inline void encode_column_block(const T* __restrict x, std::uint8_t* __restrict codes,
                                std::int64_t count, const ColumnConstants<C>& k) {
  for (std::int64_t j = 0; j < count; ++j)
    codes[j] = add(static_cast<std::uint8_t>(code<Code, kDivide>(
                       finite(x[j]), k.scale[j], k.inverse[j], k.low[j], k.high[j])),
                   k.zero_code[j]);
}

template <class T, class Code, bool kDivide, class C>
inline void encode_small_column_block(const T* __restrict x, std::uint8_t* __restrict codes,
                                      const ColumnConstants<C>& k) {
  typename Ieee<C>::Bits wide[kSmallBlock];
  for (int j = 0; j < kSmallBlock; ++j)
    wide[j] = code<Code, kDivide>(finite(x[j]), k.scale[j], k.inverse[j], k.low[j], k.high[j]) +
              static_cast<typename Ieee<C>::Bits>(k.zero_point[j]);
  __asm__ __volatile__("" : "+m"(wide));
  narrow_small_block(wide, codes);
}

template <class T, class Code, bool kDivide, class C>
inline void encode_column_row(const T* __restrict x, std::int64_t n, std::uint8_t* __restrict codes,
                              bool stream, const EncodedBatch<C>& batch) {
  std::int64_t j = 0;
  for (; j + kBlock <= n; j += kBlock) {
    alignas(kBlock) std::uint8_t block[kBlock];
    encode_column_block<T, Code, kDivide>(x + j, block, kBlock, constants_at(batch, j));
    store_block(codes + j, block, stream);
  }
  for (; j + kSmallBlock <= n; j += kSmallBlock)
    encode_small_column_block<T, Code, kDivide>(x + j, codes + j, constants_at(batch, j));
  encode_column_block<T, Code, kDivide>(x + j, codes + j, n - j, constants_at(batch, j));
}

template <class T, class Code, bool kDivide>
void encode_lines(const void* from, KeyLines lines, SegmentOfLine of, std::uint8_t* codes,
                  std::int64_t code_stride, CodeMemory memory,
                  const EncodedBatch<math::Compute<T>>& batch) {
  const T* x = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < lines.count; ++i) {
    const std::int64_t j = of.first + i * of.step;
    if (batch.method[j] != EncodeMethod::Vector) continue;
    encode_line<T, Code, kDivide, math::Compute<T>>(
        x + i * lines.stride, lines.length, codes + i * code_stride, memory,
        {batch.scale[j], batch.inverse[j], batch.low[j], batch.high[j], batch.zero_code[j]});
  }
}

template <class T, class Code, bool kDivide>
void encode_columns(const void* from, KeyLines rows, std::uint8_t* codes, std::int64_t code_stride,
                    CodeMemory memory, const EncodedBatch<math::Compute<T>>& batch) {
  const T* x = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const T* row = x + i * rows.stride;
    std::uint8_t* out = codes + i * code_stride;
    prefetch_block(reinterpret_cast<const char*>(row) + memory.ahead, rows.length * sizeof(T));
    const bool stream = memory.stream && reinterpret_cast<std::uintptr_t>(out) % kBlock == 0;
    encode_column_row<T, Code, kDivide>(row, rows.length, out, stream, batch);
  }
}

// math::symmetric_parameters for many segments at a time: none special, the scale stored in its own
// type, any quotient but RATIO. True if all of them are for vector loops.
template <class C>
bool symmetric_parameters(const math::AffineSpec<C>& spec, std::int64_t count,
                          EncodedBatch<C>& batch) {
  constexpr DType kOwn = sizeof(C) == 4 ? DType::Float32 : DType::Float64;
  const C q_min = spec.q_min, q_max = spec.q_max;
  for (std::int64_t i = 0; i < count; ++i) {
    const C peak = batch.high[i];
    const C wanted = math::stored_scale(math::symmetric_step(peak, q_max), kOwn);
    const C scale = peak == C{0} ? C{1} : wanted;
    batch.scale[i] = scale;
    batch.inverse[i] = C{1} / scale;
    batch.low[i] = q_min;
    batch.high[i] = q_max;
  }
  bool vector = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool exact = is_exact(batch.scale[i]);
    batch.method[i] = exact ? EncodeMethod::Vector : EncodeMethod::Scalar;
    vector &= exact;
  }
  std::memset(batch.zero_point, 0, static_cast<std::size_t>(count) * sizeof(std::int32_t));
  std::memset(batch.zero_code, 0, static_cast<std::size_t>(count));
  return vector;
}

inline void pack(const std::uint8_t* __restrict codes, std::int64_t bytes,
                 std::uint8_t* __restrict out, bool low_first) {
  if (low_first) {
    for (std::int64_t i = 0; i < bytes; ++i)
      out[i] = math::pack_nibbles(codes[2 * i], codes[2 * i + 1], NibbleOrder::LowFirst);
  } else {
    for (std::int64_t i = 0; i < bytes; ++i)
      out[i] = math::pack_nibbles(codes[2 * i], codes[2 * i + 1], NibbleOrder::HighFirst);
  }
}

template <class T, class Code>
void choose_code(EncodeLoops<Key<T>, math::Compute<T>>& loops, bool divide) {
  loops.lines = divide ? encode_lines<T, Code, true> : encode_lines<T, Code, false>;
  loops.columns = divide ? encode_columns<T, Code, true> : encode_columns<T, Code, false>;
}

template <class T>
void choose_loops(EncodeLoops<Key<T>, math::Compute<T>>& loops,
                  const math::AffineSpec<math::Compute<T>>& spec) {
  const bool divide = spec.quotient == Quotient::Divide;
  if (spec.output_dtype == DType::Float8E4M3FN)
    choose_code<T, E4M3Code>(loops, divide);
  else if (spec.output_dtype == DType::Float8E5M2)
    choose_code<T, E5M2Code>(loops, divide);
  else
    choose_code<T, IntegerCode>(loops, divide);
  loops.values = spec.mode == Mode::Asymmetric ? key_values<T, true> : key_values<T, false>;
  loops.symmetric = symmetric_parameters<math::Compute<T>>;
  loops.pack = pack;
}

}  // namespace planq::host::PLANQ_LEVEL
