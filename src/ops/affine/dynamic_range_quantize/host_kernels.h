// The loops of the host backend, vectorised by the compiler. No include guard: see
// host/each_level.h.
//
// Rules that keep the bits: ranges are integer maxima of bit patterns; every floating-point
// operation is one that affine/scale.h makes, in its order, except for the exact rewritings that
// are argued beside them.

namespace planq::dynamic_range_quantize::PLANQ_LEVEL {

using math::Bfloat16;
using math::bit_cast;
using math::Half;
using math::Ieee;

template <class T>
struct KeyOf {
  using type = std::int16_t;
};
template <>
struct KeyOf<float> {
  using type = std::int32_t;
};
template <>
struct KeyOf<double> {
  using type = std::int64_t;
};
template <class T>
using Key = typename KeyOf<T>::type;

template <class T>
inline constexpr Key<T> kMagnitude = std::numeric_limits<Key<T>>::max();
template <class T>
inline constexpr Key<T> kInfinityKey = 0;
template <>
inline constexpr std::int16_t kInfinityKey<Half> = 0x7C00;
template <>
inline constexpr std::int16_t kInfinityKey<Bfloat16> = 0x7F80;
template <>
inline constexpr std::int32_t kInfinityKey<float> = 0x7F800000;
template <>
inline constexpr std::int64_t kInfinityKey<double> = 0x7FF0000000000000;

// A key is a bit pattern read as an integer. Symmetric: the magnitude. Otherwise: negative values
// mirrored, so that keys are ordered as the values are, and every NaN and infinity is outside the
// keys of the finite values.
template <class T, bool kSigns, class K>
inline K ordered(K bits) {
  if constexpr (kSigns) {
    return bits ^ ((bits >> (sizeof(Key<T>) * 8 - 1)) & kMagnitude<T>);
  } else {
    return bits & kMagnitude<T>;
  }
}

template <class T>
inline Key<T> key_bits(T x) {
  return bit_cast<Key<T>>(x);
}

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

template <class T, bool kSigns, class C>
inline C value_of(Key<T> key) {
  return finite(bit_cast<T>(kSigns ? ordered<T, true>(key) : key));
}

// Loops run over blocks of a fixed size, which compilers turn into straight vector code.
inline constexpr int kBlock = 64;
inline constexpr int kSmallBlock = 16;

template <class K>
struct Keys {
  K low, high;
};

template <class T, bool kSigns>
inline Keys<Key<T>> no_keys() {
  return {kMagnitude<T>, kSigns ? std::numeric_limits<Key<T>>::min() : Key<T>{0}};
}

inline void prefetch_block(const void* where, std::int64_t bytes) {
  for (std::int64_t line = 0; line < bytes; line += 64)
    __builtin_prefetch(static_cast<const char*>(where) + line, 0, 3);
}

template <class T, bool kSigns>
inline Keys<Key<T>> short_row_keys(const T* x, std::int64_t n) {
  auto keys = no_keys<T, kSigns>();
  for (std::int64_t i = 0; i < n; ++i) {
    const Key<T> key = ordered<T, kSigns>(key_bits(x[i]));
    if constexpr (kSigns) keys.low = key < keys.low ? key : keys.low;
    keys.high = key > keys.high ? key : keys.high;
  }
  return keys;
}

template <class K, int kBytes>
struct VectorOf {
  typedef K type __attribute__((vector_size(kBytes)));
};
template <class K, int kBytes>
using Vector = typename VectorOf<K, kBytes>::type;

template <bool kSmallest, class V>
inline V extremes(V a, V b) {
  if constexpr (kSmallest) return a < b ? a : b;
  return a > b ? a : b;
}

template <class K, int kShift, class V, std::size_t... kLane>
inline V rotated(V v, std::index_sequence<kLane...>) {
#if defined(__clang__)
  return __builtin_shufflevector(v, v, ((kLane + kShift) % sizeof...(kLane))...);
#else
  return __builtin_shuffle(v, V{static_cast<K>((kLane + kShift) % sizeof...(kLane))...});
#endif
}

// The smallest or the largest lane: halves against each other down to 16 bytes, then rotations.
template <bool kSmallest, class K, int kBytes, int kShift = 8 / sizeof(K)>
inline K extreme_lane(Vector<K, kBytes> v) {
  if constexpr (kBytes > 16) {
    Vector<K, kBytes / 2> half[2];
    std::memcpy(half, &v, kBytes);
    return extreme_lane<kSmallest, K, kBytes / 2>(extremes<kSmallest>(half[0], half[1]));
  } else {
    constexpr int kLanes = 16 / sizeof(K);
    const auto turned = rotated<K, kShift>(v, std::make_index_sequence<kLanes>{});
    v = extremes<kSmallest>(v, turned);
    if constexpr (kShift > 1) return extreme_lane<kSmallest, K, kBytes, kShift / 2>(v);
    return v[0];
  }
}

template <class T, bool kSigns, class V>
inline void include_vector(const T* x, V& low, V& high) {
  V bits;
  std::memcpy(&bits, x, sizeof(bits));
  const V keys = ordered<T, kSigns>(bits);
  if constexpr (kSigns) low = extremes<true>(low, keys);
  high = extremes<false>(high, keys);
}

// Rows that do not end on a whole vector measure their last vector's worth again.
template <class T, bool kSigns, int kBytes = PLANQ_VECTOR_BYTES>
inline Keys<Key<T>> row_keys(const T* x, std::int64_t n, std::int64_t ahead) {
  using K = Key<T>;
  using V = Vector<K, kBytes>;
  constexpr int kLanes = kBytes / sizeof(K);
  if (n < kLanes) {
    if constexpr (kBytes > 16) return row_keys<T, kSigns, kBytes / 2>(x, n, ahead);
    return short_row_keys<T, kSigns>(x, n);
  }
  const auto none = no_keys<T, kSigns>();
  V low = V{} + none.low, high = V{} + none.high;
  std::int64_t i = 0;
  constexpr int kUnroll = 128 / kBytes;
  for (; i + kUnroll * kLanes <= n; i += kUnroll * kLanes) {
    prefetch_block(reinterpret_cast<const char*>(x + i) + ahead, 128);
    for (int part = 0; part < kUnroll; ++part)
      include_vector<T, kSigns>(x + i + part * kLanes, low, high);
  }
  for (; i + kLanes <= n; i += kLanes) include_vector<T, kSigns>(x + i, low, high);
  if (i < n) include_vector<T, kSigns>(x + n - kLanes, low, high);
  Keys<K> keys = none;
  if constexpr (kSigns) keys.low = extreme_lane<true, K, kBytes>(low);
  keys.high = extreme_lane<false, K, kBytes>(high);
  return keys;
}

template <class T, bool kSigns, class C>
inline void put_range(SegmentRanges<C>& ranges, std::int64_t at, Keys<Key<T>> keys) {
  ranges.low[at] = kSigns ? value_of<T, kSigns, C>(keys.low) : C{0};
  ranges.high[at] = value_of<T, kSigns, C>(keys.high);
  ranges.special[at] =
      keys.high >= kInfinityKey<T> || (kSigns && keys.low <= static_cast<Key<T>>(~kInfinityKey<T>));
}

template <class T, bool kSigns, class C>
void measure_rows(const T* x, Rows rows, Owner owner, std::int64_t ahead,
                  SegmentRanges<C>& ranges) {
  auto all = no_keys<T, kSigns>();
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const auto keys = row_keys<T, kSigns>(x + i * rows.stride, rows.length, ahead);
    all.low = keys.low < all.low ? keys.low : all.low;
    all.high = keys.high > all.high ? keys.high : all.high;
    if (owner.step) put_range<T, kSigns, C>(ranges, owner.first + i * owner.step, keys);
  }
  if (!owner.step) put_range<T, kSigns, C>(ranges, owner.first, all);
}

template <class T, bool kSigns>
inline void include_keys(const T* __restrict x, std::int64_t count, Key<T>* __restrict low,
                         Key<T>* __restrict high) {
  for (std::int64_t j = 0; j < count; ++j) {
    const Key<T> key = ordered<T, kSigns>(key_bits(x[j]));
    if constexpr (kSigns) low[j] = key < low[j] ? key : low[j];
    high[j] = key > high[j] ? key : high[j];
  }
}

template <class T, bool kSigns, class C>
void measure_columns(const T* x, Rows rows, std::int64_t ahead, SegmentRanges<C>& ranges) {
  alignas(64) Key<T> low[kSegments<C>], high[kSegments<C>];
  const auto none = no_keys<T, kSigns>();
  const std::int64_t n = rows.length;
  for (std::int64_t j = 0; j < n; ++j) low[j] = none.low, high[j] = none.high;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const T* row = x + i * rows.stride;
    prefetch_block(reinterpret_cast<const char*>(row) + ahead, n * sizeof(T));
    std::int64_t j = 0;
    for (; j + kBlock <= n; j += kBlock)
      include_keys<T, kSigns>(row + j, kBlock, low + j, high + j);
    for (; j + kSmallBlock <= n; j += kSmallBlock)
      include_keys<T, kSigns>(row + j, kSmallBlock, low + j, high + j);
    include_keys<T, kSigns>(row + j, n - j, low + j, high + j);
  }
  for (std::int64_t j = 0; j < n; ++j) put_range<T, kSigns, C>(ranges, j, {low[j], high[j]});
}

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

// Adding 1.5 * 2^fraction leaves the integer nearest to `bounded` in the low bits, ties to even.
struct IntegerCode {
  template <class C>
  static typename Ieee<C>::Bits of(C bounded) {
    constexpr C kShift = std::is_same_v<C, float> ? C(12582912.0) : C(6755399441055744.0);
    return bit_cast<typename Ieee<C>::Bits>(bounded + kShift);
  }
};

using host::E4M3Code;
using host::E5M2Code;

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
inline void quantize_block(const T* __restrict x, std::uint8_t* __restrict codes,
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
inline void quantize_small_block(const T* __restrict x, std::uint8_t* __restrict codes,
                                 const Constants<C>& k) {
  typename Ieee<C>::Bits wide[kSmallBlock];
  for (int j = 0; j < kSmallBlock; ++j)
    wide[j] = code<Code, kDivide>(finite(x[j]), k.scale, k.inverse, k.low, k.high) + k.zero_code;
  __asm__ __volatile__("" : "+m"(wide));
  narrow_small_block(wide, codes);
}

// A row that does not end on a whole block redoes the last one at its end, with the same codes.
template <class T, class Code, bool kDivide, class C>
void quantize_row(const T* __restrict x, std::int64_t n, std::uint8_t* __restrict codes,
                  Memory memory, const Constants<C>& constants) {
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
    quantize_block<T, Code, kDivide>(x, codes, k);
    i = kBlock - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(codes) % kBlock);
  }
  for (; i + kBlock <= n; i += kBlock) {
    prefetch_block(reinterpret_cast<const char*>(x + i) + memory.ahead, kBlock * sizeof(T));
    alignas(kBlock) std::uint8_t block[kBlock];
    quantize_block<T, Code, kDivide>(x + i, block, k);
    store_block(codes + i, block, stream);
  }
  for (; i + kSmallBlock <= n; i += kSmallBlock)
    quantize_small_block<T, Code, kDivide>(x + i, codes + i, k);
  if (i < n)
    quantize_small_block<T, Code, kDivide>(x + n - kSmallBlock, codes + n - kSmallBlock, k);
}

// Constants of consecutive columns.
template <class C>
struct ColumnConstants {
  const C *scale, *inverse, *low, *high;
  const std::int32_t* zero_point;
  const std::uint8_t* zero_code;
};

template <class C>
inline ColumnConstants<C> constants_at(const Segments<C>& s, std::int64_t j) {
  return {s.scale + j, s.inverse + j, s.low + j, s.high + j, s.zero_point + j, s.zero_code + j};
}

template <class T, class Code, bool kDivide, class C>
inline void quantize_column_block(const T* __restrict x, std::uint8_t* __restrict codes,
                                  std::int64_t count, const ColumnConstants<C>& k) {
  for (std::int64_t j = 0; j < count; ++j)
    codes[j] = add(static_cast<std::uint8_t>(code<Code, kDivide>(
                       finite(x[j]), k.scale[j], k.inverse[j], k.low[j], k.high[j])),
                   k.zero_code[j]);
}

template <class T, class Code, bool kDivide, class C>
inline void quantize_small_column_block(const T* __restrict x, std::uint8_t* __restrict codes,
                                        const ColumnConstants<C>& k) {
  typename Ieee<C>::Bits wide[kSmallBlock];
  for (int j = 0; j < kSmallBlock; ++j)
    wide[j] = code<Code, kDivide>(finite(x[j]), k.scale[j], k.inverse[j], k.low[j], k.high[j]) +
              static_cast<typename Ieee<C>::Bits>(k.zero_point[j]);
  __asm__ __volatile__("" : "+m"(wide));
  narrow_small_block(wide, codes);
}

template <class T, class Code, bool kDivide, class C>
inline void quantize_column_row(const T* __restrict x, std::int64_t n,
                                std::uint8_t* __restrict codes, bool stream,
                                const Segments<C>& segments) {
  std::int64_t j = 0;
  for (; j + kBlock <= n; j += kBlock) {
    alignas(kBlock) std::uint8_t block[kBlock];
    quantize_column_block<T, Code, kDivide>(x + j, block, kBlock, constants_at(segments, j));
    store_block(codes + j, block, stream);
  }
  for (; j + kSmallBlock <= n; j += kSmallBlock)
    quantize_small_column_block<T, Code, kDivide>(x + j, codes + j, constants_at(segments, j));
  quantize_column_block<T, Code, kDivide>(x + j, codes + j, n - j, constants_at(segments, j));
}

template <class T, class Code, bool kDivide, class C>
void quantize_columns(const T* x, Rows rows, std::uint8_t* codes, std::int64_t code_stride,
                      Memory memory, const Segments<C>& segments) {
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const T* row = x + i * rows.stride;
    std::uint8_t* out = codes + i * code_stride;
    prefetch_block(reinterpret_cast<const char*>(row) + memory.ahead, rows.length * sizeof(T));
    const bool stream = memory.stream && reinterpret_cast<std::uintptr_t>(out) % kBlock == 0;
    quantize_column_row<T, Code, kDivide>(row, rows.length, out, stream, segments);
  }
}

template <class T>
struct Range {
  using C = math::Compute<T>;

  static void rows(const void* input, Rows rows, Owner owner, std::int64_t ahead, bool signs,
                   SegmentRanges<C>& ranges) {
    const T* x = static_cast<const T*>(input);
    signs ? measure_rows<T, true>(x, rows, owner, ahead, ranges)
          : measure_rows<T, false>(x, rows, owner, ahead, ranges);
  }
  static void columns(const void* input, Rows rows, std::int64_t ahead, bool signs,
                      SegmentRanges<C>& ranges) {
    const T* x = static_cast<const T*>(input);
    signs ? measure_columns<T, true>(x, rows, ahead, ranges)
          : measure_columns<T, false>(x, rows, ahead, ranges);
  }
};

template <class T, class Code>
struct Quantize {
  using C = math::Compute<T>;

  static void rows(const void* input, Rows rows, Owner owner, std::uint8_t* codes,
                   std::int64_t code_stride, Memory memory, bool divide,
                   const Segments<C>& segments) {
    const T* x = static_cast<const T*>(input);
    for (std::int64_t i = 0; i < rows.count; ++i) {
      const std::int64_t j = owner.first + i * owner.step;
      if (segments.path[j] != Path::Vector) continue;
      const T* row = x + i * rows.stride;
      std::uint8_t* out = codes + i * code_stride;
      const Constants<C> constants = {segments.scale[j], segments.inverse[j], segments.low[j],
                                      segments.high[j], segments.zero_code[j]};
      divide ? quantize_row<T, Code, true>(row, rows.length, out, memory, constants)
             : quantize_row<T, Code, false>(row, rows.length, out, memory, constants);
    }
  }
  static void columns(const void* input, Rows rows, std::uint8_t* codes, std::int64_t code_stride,
                      Memory memory, bool divide, const Segments<C>& segments) {
    const T* x = static_cast<const T*>(input);
    divide ? quantize_columns<T, Code, true>(x, rows, codes, code_stride, memory, segments)
           : quantize_columns<T, Code, false>(x, rows, codes, code_stride, memory, segments);
  }
};

// math::symmetric_parameters for the usual descriptor, many segments at a time: none special, the
// scale stored in its own type, any quotient but RATIO. True if all of them are for vector loops.
template <class C>
bool settle_symmetric(const math::AffineRecipe<C>& recipe, std::int64_t count,
                      Segments<C>& segments) {
  constexpr DType kOwn = sizeof(C) == 4 ? DType::Float32 : DType::Float64;
  const C q_min = recipe.q_min, q_max = recipe.q_max;
  for (std::int64_t i = 0; i < count; ++i) {
    const C peak = segments.high[i];
    const C wanted = math::stored_scale(math::symmetric_step(peak, q_max), kOwn);
    const C scale = peak == C{0} ? C{1} : wanted;
    segments.scale[i] = scale;
    segments.inverse[i] = C{1} / scale;
    segments.low[i] = q_min;
    segments.high[i] = q_max;
  }
  bool vector = true;
  for (std::int64_t i = 0; i < count; ++i) {
    segments.path[i] = is_exact(segments.scale[i]) ? Path::Vector : Path::Scalar;
    vector &= segments.path[i] == Path::Vector;
  }
  std::memset(segments.zero_point, 0, static_cast<std::size_t>(count) * sizeof(std::int32_t));
  std::memset(segments.zero_code, 0, static_cast<std::size_t>(count));
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

template <class T>
constexpr RangeKernels<math::Compute<T>> range_kernels() {
  return {Range<T>::rows, Range<T>::columns};
}
template <class T, class Code>
constexpr QuantizeKernels<math::Compute<T>> quantize_kernels() {
  return {Quantize<T, Code>::rows, Quantize<T, Code>::columns};
}

}  // namespace planq::dynamic_range_quantize::PLANQ_LEVEL
