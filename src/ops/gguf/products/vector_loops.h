// Vectors of AVX-512 with VNNI, or of AVX2: what unpacks and multiplies codes of several rows of
// weights at once. No include guard, like the other parts of host_loops.h.
//
// A tile is kLanes rows of weights. Sixteen bytes of each make four vectors: of vector i, quarter q
// (half, where vectors have 32 bytes) is row 4 q + i.

namespace planq::gguf::products::PLANQ_LEVEL {

#define PLANQ_INLINE [[gnu::always_inline]] inline

#if PLANQ_VNNI
using Vector = __m512i;
using Floats = __m512;
PLANQ_INLINE Vector zero() { return _mm512_setzero_si512(); }
PLANQ_INLINE Vector bytes(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
PLANQ_INLINE Vector words(std::uint32_t value) {
  return _mm512_set1_epi32(static_cast<int>(value));
}
// Sixteen bytes, in each quarter.
PLANQ_INLINE Vector repeated(const void* from) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(from)));
}
PLANQ_INLINE Vector load(const void* from) { return _mm512_load_si512(from); }
PLANQ_INLINE void store(void* to, Vector v) { _mm512_store_si512(to, v); }
PLANQ_INLINE Vector looked_up(Vector table, Vector at) { return _mm512_shuffle_epi8(table, at); }
PLANQ_INLINE Vector low_words(Vector a, Vector b) { return _mm512_unpacklo_epi32(a, b); }
PLANQ_INLINE Vector high_words(Vector a, Vector b) { return _mm512_unpackhi_epi32(a, b); }
PLANQ_INLINE Vector low_pairs(Vector a, Vector b) { return _mm512_unpacklo_epi64(a, b); }
PLANQ_INLINE Vector high_pairs(Vector a, Vector b) { return _mm512_unpackhi_epi64(a, b); }
PLANQ_INLINE Vector add_words(Vector a, Vector b) { return _mm512_add_epi32(a, b); }

PLANQ_INLINE Floats no_floats() { return _mm512_setzero_ps(); }
PLANQ_INLINE Floats floats(float value) { return _mm512_set1_ps(value); }
PLANQ_INLINE Floats load_floats(const float* from) { return _mm512_loadu_ps(from); }
PLANQ_INLINE void store_floats(float* to, Floats v) { _mm512_storeu_ps(to, v); }
PLANQ_INLINE Floats as_floats(Vector bits) { return _mm512_castsi512_ps(bits); }
PLANQ_INLINE Floats to_floats(Vector integers) { return _mm512_cvtepi32_ps(integers); }
PLANQ_INLINE Floats fused(Floats x, Floats y, Floats z) { return _mm512_fmadd_ps(x, y, z); }
// The float16 numbers in the lower halves of the lanes, and in memory.
PLANQ_INLINE Floats from_halves(Vector v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
PLANQ_INLINE Floats load_halves(const void* from) {
  return _mm512_cvtph_ps(_mm256_load_si256(static_cast<const __m256i*>(from)));
}
// Numbers of 16 bits in memory, as words.
PLANQ_INLINE Vector load_widened(const void* from) {
  return _mm512_cvtepu16_epi32(_mm256_load_si256(static_cast<const __m256i*>(from)));
}
#else
using Vector = __m256i;
using Floats = __m256;
PLANQ_INLINE Vector zero() { return _mm256_setzero_si256(); }
PLANQ_INLINE Vector bytes(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }
PLANQ_INLINE Vector words(std::uint32_t value) {
  return _mm256_set1_epi32(static_cast<int>(value));
}
PLANQ_INLINE Vector repeated(const void* from) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(from)));
}
PLANQ_INLINE Vector load(const void* from) {
  return _mm256_load_si256(static_cast<const __m256i*>(from));
}
PLANQ_INLINE void store(void* to, Vector v) { _mm256_store_si256(static_cast<__m256i*>(to), v); }
PLANQ_INLINE Vector looked_up(Vector table, Vector at) { return _mm256_shuffle_epi8(table, at); }
PLANQ_INLINE Vector low_words(Vector a, Vector b) { return _mm256_unpacklo_epi32(a, b); }
PLANQ_INLINE Vector high_words(Vector a, Vector b) { return _mm256_unpackhi_epi32(a, b); }
PLANQ_INLINE Vector low_pairs(Vector a, Vector b) { return _mm256_unpacklo_epi64(a, b); }
PLANQ_INLINE Vector high_pairs(Vector a, Vector b) { return _mm256_unpackhi_epi64(a, b); }
PLANQ_INLINE Vector add_words(Vector a, Vector b) { return _mm256_add_epi32(a, b); }

PLANQ_INLINE Floats no_floats() { return _mm256_setzero_ps(); }
PLANQ_INLINE Floats floats(float value) { return _mm256_set1_ps(value); }
PLANQ_INLINE Floats load_floats(const float* from) { return _mm256_loadu_ps(from); }
PLANQ_INLINE void store_floats(float* to, Floats v) { _mm256_storeu_ps(to, v); }
PLANQ_INLINE Floats as_floats(Vector bits) { return _mm256_castsi256_ps(bits); }
PLANQ_INLINE Floats to_floats(Vector integers) { return _mm256_cvtepi32_ps(integers); }
PLANQ_INLINE Floats fused(Floats x, Floats y, Floats z) { return _mm256_fmadd_ps(x, y, z); }
PLANQ_INLINE Floats from_halves(Vector v) {
  const Vector low = v & words(0xFFFF);
  const Vector packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
PLANQ_INLINE Floats load_halves(const void* from) {
  return _mm256_cvtph_ps(_mm_load_si128(static_cast<const __m128i*>(from)));
}
PLANQ_INLINE Vector load_widened(const void* from) {
  return _mm256_cvtepu16_epi32(_mm_load_si128(static_cast<const __m128i*>(from)));
}
#endif

constexpr int kLanes = sizeof(Vector) / 4, kQuarters = sizeof(Vector) / 16;

// Numbers in lanes.
using Halves = std::uint16_t __attribute__((vector_size(sizeof(Vector))));
using Words = std::uint32_t __attribute__((vector_size(sizeof(Vector))));

// Bits move across the borders of bytes: callers mask them.
PLANQ_INLINE Vector right(Vector v, int bits) {
  return reinterpret_cast<Vector>(reinterpret_cast<Halves>(v) >> bits);
}
PLANQ_INLINE Vector left(Vector v, int bits) {
  return reinterpret_cast<Vector>(reinterpret_cast<Halves>(v) << bits);
}
// Bit `from` of each byte, and those above it, become bit `to`.
PLANQ_INLINE Vector moved(Vector v, int from, int to) {
  return from >= to ? right(v, from - to) : left(v, to - from);
}
PLANQ_INLINE Vector right_words(Vector v, int bits) {
  return reinterpret_cast<Vector>(reinterpret_cast<Words>(v) >> bits);
}
PLANQ_INLINE Vector low_nibbles(Vector v) { return v & bytes(15); }
PLANQ_INLINE Vector nibbles(Vector v, int place) { return low_nibbles(place ? right(v, 4) : v); }

// A table of sixteen bytes, for looked_up.
struct Table {
  alignas(16) std::int8_t entries[16];
};
PLANQ_INLINE Vector looked_up(const Table& table, Vector at) {
  return looked_up(repeated(table.entries), at);
}

// A block of each row of a tile, and the memory of one that comes later.
struct Rows {
  const std::uint8_t* quarter[kQuarters];  // four rows from there on
  std::int64_t stride;
  const std::uint8_t* ahead;

  PLANQ_INLINE const std::uint8_t* row(int i, int q) const { return quarter[q] + i * stride; }

  // Sixteen bytes of each row, as four vectors: of those one.
  PLANQ_INLINE Vector part(int i, int at) const {
    const auto of = [&](int q) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row(i, q) + at));
    };
#if PLANQ_VNNI
    Vector v = _mm512_castsi128_si512(of(0));
    v = _mm512_inserti32x4(v, of(1), 1);
    v = _mm512_inserti32x4(v, of(2), 2);
    return _mm512_inserti32x4(v, of(3), 3);
#else
    return _mm256_inserti128_si256(_mm256_castsi128_si256(of(0)), of(1), 1);
#endif
  }
  // 32 bits of each row: `value` in the bytes whose bit is set. The first sixteen bits of the rows
  // are one vector, the others a second one.
  PLANQ_INLINE void bits(int i, int at, int value, Vector (&halves)[2]) const {
    const auto of = [&](int q) {
      std::uint32_t word;
      std::memcpy(&word, row(i, q) + at, sizeof word);
      return word;
    };
#if PLANQ_VNNI
    constexpr std::uint64_t kLow = 0x0000FFFF0000FFFF;
    const std::uint64_t even = of(0) | static_cast<std::uint64_t>(of(2)) << 32;
    const std::uint64_t odd = of(1) | static_cast<std::uint64_t>(of(3)) << 32;
    const Vector set = bytes(value);
    halves[0] = _mm512_maskz_mov_epi8((even & kLow) | (odd & kLow) << 16, set);
    halves[1] = _mm512_maskz_mov_epi8((even >> 16 & kLow) | (odd & ~kLow), set);
#else
    const auto all = [&](int q) { return _mm_set1_epi32(static_cast<std::int32_t>(of(q))); };
    const Vector both = _mm256_inserti128_si256(_mm256_castsi128_si256(all(0)), all(1), 1);
    const Vector bit = _mm256_set1_epi64x(static_cast<std::int64_t>(0x8040201008040201u));
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const std::int64_t first = 0x0202020202020202 * half, second = first + 0x0101010101010101;
      const Vector own = looked_up(both, _mm256_setr_epi64x(first, second, first, second));
      halves[half] = _mm256_cmpeq_epi8(own & bit, bit) & bytes(value);
    }
#endif
  }
  // Goes on to the next block, which is `kBytes` further. Prefetches as much of a tile that comes
  // later, whose memory is one run if rows have no gaps: into the second level of caches, since the
  // first has no room for it, and fewer lines under way.
  template <int kBytes>
  PLANQ_INLINE void advance() {
#pragma GCC unroll 64
    for (int at = 0; at < kLanes * kBytes; at += 64) __builtin_prefetch(ahead + at, 0, 2);
    ahead += kLanes * kBytes;
#pragma GCC unroll 4
    for (int q = 0; q < kQuarters; ++q) quarter[q] += kBytes;
  }
};

// The first bytes of the blocks of a span, for all rows: types whose blocks have few elements begin
// with their scale. Numbers go through integer registers, which leaves the units that shuffle
// vectors to the codes.
template <class Head, class B>
struct Heads {
  alignas(64) Head heads[kSpan / B::kElements][kLanes];

  void fill(const Rows& rows, int blocks) {
    for (int block = 0; block < blocks; ++block)
#pragma GCC unroll 16
      for (int lane = 0; lane < kLanes; ++lane) {
        Head head;
        std::memcpy(&head, rows.row(lane % 4, lane / 4) + block * B::kBytes, sizeof head);
        // Stored one by one: compilers would make vectors of them.
        const_cast<volatile Head&>(heads[block][lane]) = head;
      }
  }
  const Head* of(int block) const { return heads[block]; }
};
// Of types that read their scales otherwise.
template <class B>
struct Heads<void, B> {
  void fill(const Rows&, int) {}
  const void* of(int) const { return nullptr; }
};

// Four vectors of four words of each row: then vector j has word j of every row, in the lane with
// the row's number.
PLANQ_INLINE void transpose(Vector (&v)[4]) {
  const Vector a = low_words(v[0], v[1]), b = high_words(v[0], v[1]);
  const Vector c = low_words(v[2], v[3]), d = high_words(v[2], v[3]);
  v[0] = low_pairs(a, c);
  v[1] = high_pairs(a, c);
  v[2] = low_pairs(b, d);
  v[3] = high_pairs(b, d);
}
// The sums of the words of each row, in the lane with the row's number.
PLANQ_INLINE Vector totals(const Vector (&v)[4]) {
  const Vector ab = add_words(low_words(v[0], v[1]), high_words(v[0], v[1]));
  const Vector cd = add_words(low_words(v[2], v[3]), high_words(v[2], v[3]));
  return add_words(low_pairs(ab, cd), high_pairs(ab, cd));
}

// --- Products ------------------------------------------------------------------------------------

// Sums of products of codes, which are unsigned up to kLargest, with bytes that are signed. Where
// kLargest is 0, without VNNI, codes are signed, too; then no byte of the input may be -128.
template <int kLargest>
struct Products {
#if PLANQ_VNNI
  static constexpr int kSteps = 8;  // that may be added before sums are told
  PLANQ_INLINE static Vector add(Vector sum, Vector codes, Vector input) {
    return _mm512_dpbusd_epi32(sum, codes, input);
  }
  PLANQ_INLINE static Vector told(Vector sum) { return sum; }
#else
  // Sums of 16 bits are told as sums of 32.
  static constexpr int kMost = kLargest == 0 ? 1 : 32767 / (2 * 128 * kLargest);
  static constexpr int kSteps = kMost >= 8 ? 8 : kMost >= 4 ? 4 : kMost >= 2 ? 2 : 1;
  PLANQ_INLINE static Vector add(Vector sum, Vector codes, Vector input) {
    const Vector one = _mm256_set1_epi16(1);
    if constexpr (kLargest == 0)
      return _mm256_add_epi32(
          sum,
          _mm256_madd_epi16(
              _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(input, codes)), one));
    else
      return _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, input));
  }
  PLANQ_INLINE static Vector told(Vector sum) {
    return kLargest == 0 ? sum : _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
  }
#endif
};

}  // namespace planq::gguf::products::PLANQ_LEVEL
