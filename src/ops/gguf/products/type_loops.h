// How each type's codes and scales are unpacked, for a tile of rows at a time. No include guard,
// like the other parts of host_loops.h.
//
// A block is kUnits units, whose sums are complete. A unit has kSteps steps; a step is the bytes
// that `raw` loads at once, and they have kPieces pieces: sixteen neighbours, the first of which is
// `element`. `code` gives a piece's codes plus kOffset, of which kLargest is the largest.

namespace planq::gguf::products::PLANQ_LEVEL {

template <int kUnitsOf, int kStepsOf, int kPiecesOf, int kOffsetOf, int kLargestOf>
struct Layout {
  static constexpr int kUnits = kUnitsOf, kSteps = kStepsOf, kPieces = kPiecesOf;
  static constexpr int kOffset = kOffsetOf, kLargest = kLargestOf;
};
// Of codes of 8 bits. Without VNNI they keep their signs: see Products.
template <int kUnits, int kSteps, int kPieces>
using WideLayout = Layout<kUnits, kSteps, kPieces, PLANQ_VNNI ? 128 : 0, PLANQ_VNNI ? 255 : 0>;

// --- Scales --------------------------------------------------------------------------------------

// The four words of sixteen bytes of each row.
struct RowWords {
  Vector word[4];

  PLANQ_INLINE RowWords(const Rows& rows, int at) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) word[i] = rows.part(i, at);
    transpose(word);
  }
  PLANQ_INLINE Vector operator[](int i) const { return word[i]; }
};

// A byte of each lane, as a number.
PLANQ_INLINE Floats byte_of(Vector v, int place) {
  return to_floats(place == 3 ? right_words(v, 24) : right_words(v, 8 * place) & words(255));
}
PLANQ_INLINE Floats signed_byte_of(Vector v, int place) {
  using Signed = std::int32_t __attribute__((vector_size(sizeof(Vector))));
  return to_floats(reinterpret_cast<Vector>(reinterpret_cast<Signed>(v) << (24 - 8 * place) >> 24));
}
PLANQ_INLINE Floats negated(Floats v) {
  return as_floats(reinterpret_cast<Vector>(v) ^ words(1u << 31));
}

// Of types in blocks of 256, scales are read from the rows.
struct LongBlock {
  using Head = void;
};

// One float16 number for the block, at its beginning.
struct OneScale {
  using Head = std::uint16_t;
  static constexpr bool kHasMinimum = false;
  Floats own;

  PLANQ_INLINE OneScale(const Rows&, const Head* heads) : own(load_halves(heads)) {}
  PLANQ_INLINE Floats scale(int) const { return own; }
};
// The same, and a minimum.
struct OneMinimum {
  using Head = std::uint32_t;
  static constexpr bool kHasMinimum = true;
  Floats own, least;

  PLANQ_INLINE OneMinimum(const Rows&, const Head* heads)
      : own(from_halves(load(heads))), least(from_halves(right_words(load(heads), 16))) {}
  PLANQ_INLINE Floats scale(int) const { return own; }
  PLANQ_INLINE Floats minimum(int) const { return least; }
};
// One float16 number as the last bytes of a block.
template <int kAt>
struct LastScale : LongBlock {
  static constexpr bool kHasMinimum = false;
  Floats own;

  PLANQ_INLINE LastScale(const Rows& rows, const void*)
      : own(from_halves(right_words(RowWords(rows, kAt - 14)[3], 16))) {}
  PLANQ_INLINE Floats scale(int) const { return own; }
};
// Eight scales and eight minima of 6 bits.
struct SixBits : LongBlock {
  static constexpr bool kHasMinimum = true;
  Floats own, least;  // of all; the minimum is negative
  Vector scales[2], minima[2];

  PLANQ_INLINE SixBits(const Rows& rows, const void*) {
    const RowWords head(rows, 0);
    own = from_halves(head[0]);
    least = negated(from_halves(right_words(head[0], 16)));
    const Vector six = words(0x3F3F3F3F), four = words(0x0F0F0F0F), two = words(0x30303030);
    scales[0] = head[1] & six;
    minima[0] = head[2] & six;
    scales[1] = (head[3] & four) | (right_words(head[1], 2) & two);
    minima[1] = (right_words(head[3], 4) & four) | (right_words(head[2], 2) & two);
  }
  PLANQ_INLINE Floats scale(int j) const { return own * byte_of(scales[j / 4], j % 4); }
  PLANQ_INLINE Floats minimum(int j) const { return least * byte_of(minima[j / 4], j % 4); }
};

// --- Types ---------------------------------------------------------------------------------------

// 32 codes in sixteen bytes from kAt on, in each of kUnits units: low nibbles come first.
template <class Base, int kAt>
struct Nibbles : Base {
  static constexpr int element(int unit, int, int piece) { return 32 * unit + 16 * piece; }
  PLANQ_INLINE static Vector raw(const Rows& rows, int i, int unit, int) {
    return rows.part(i, kAt + 16 * unit);
  }
  PLANQ_INLINE static Vector code(Vector raw, int, int, int piece) { return nibbles(raw, piece); }
};
// The same with a fifth bit of each code, in the words before.
template <class Base, int kAt>
struct FiveBits : Base {
  struct Raw {
    Vector low, high[2];
  };
  static constexpr int element(int, int, int piece) { return 16 * piece; }
  PLANQ_INLINE static Raw raw(const Rows& rows, int i, int, int) {
    Raw raw{.low = rows.part(i, kAt), .high = {}};
    rows.bits(i, kAt - 4, 16, raw.high);
    return raw;
  }
  PLANQ_INLINE static Vector code(const Raw& raw, int, int, int piece) {
    return nibbles(raw.low, piece) | raw.high[piece];
  }
};
// The same of numbers that a table has.
template <class Base, int kAt, const Table& kTable>
struct TableNibbles : Nibbles<Base, kAt> {
  PLANQ_INLINE static Vector code(Vector raw, int, int, int piece) {
    return looked_up(kTable, nibbles(raw, piece));
  }
};

// `above`: what is added to the number of each code.
template <class Number>
constexpr Table table_of(const Number& number, int above) {
  Table table{};
  for (int i = 0; i < 16; ++i) table.entries[i] = static_cast<std::int8_t>(number(i) + above);
  return table;
}
inline constexpr Table kNonLinearTable = table_of(gguf::non_linear, PLANQ_VNNI ? 128 : 0);
inline constexpr Table kE2M1Table = table_of(gguf::twice_e2m1, 12);

template <class B>
struct Unpack;

// Of types with grids, whose codes are looked up row by row: see tile_loops.h.
template <gguf::HasEights B>
struct Unpack<B> {
  static constexpr int kOffset = B::kLargest, kLargest = 2 * B::kLargest;
  struct Scales {
    static constexpr bool kHasMinimum = false;
  };
};

template <>
struct Unpack<gguf::Block<GgufType::Q4_0>> : Nibbles<Layout<1, 1, 2, 8, 15>, 2> {
  using Scales = OneScale;
};
template <>
struct Unpack<gguf::Block<GgufType::Q4_1>> : Nibbles<Layout<1, 1, 2, 0, 15>, 4> {
  using Scales = OneMinimum;
};
template <>
struct Unpack<gguf::Block<GgufType::Q5_0>> : FiveBits<Layout<1, 1, 2, 16, 31>, 6> {
  using Scales = OneScale;
};
template <>
struct Unpack<gguf::Block<GgufType::Q5_1>> : FiveBits<Layout<1, 1, 2, 0, 31>, 8> {
  using Scales = OneMinimum;
};
template <>
struct Unpack<gguf::Block<GgufType::Iq4Nl>>
    : TableNibbles<WideLayout<1, 1, 2>, 2, kNonLinearTable> {
  using Scales = OneScale;
};

template <>
struct Unpack<gguf::Block<GgufType::Q8_0>> : WideLayout<1, 2, 1> {
  using Scales = OneScale;
  static constexpr int element(int, int step, int) { return 16 * step; }
  PLANQ_INLINE static Vector raw(const Rows& rows, int i, int, int step) {
    return rows.part(i, 2 + 16 * step);
  }
  PLANQ_INLINE static Vector code(Vector raw, int, int, int) {
    return PLANQ_VNNI ? raw ^ bytes(128) : raw;
  }
};

template <>
struct Unpack<gguf::Block<GgufType::Mxfp4>> : TableNibbles<Layout<1, 1, 2, 12, 24>, 1, kE2M1Table> {
  struct Scales {
    using Head = std::uint16_t;  // of which the lower half counts
    static constexpr bool kHasMinimum = false;
    Floats own;

    // 2^(x - 128), which is subnormal for the codes 0 and 1.
    PLANQ_INLINE Scales(const Rows&, const Head* heads) {
      const Words x = reinterpret_cast<Words>(load_widened(heads) & words(255));
      const Words least = reinterpret_cast<Words>(words(0x00200000u));
      own = as_floats(reinterpret_cast<Vector>(x < 2 ? least << x : (x - 1) << 23));
    }
    PLANQ_INLINE Floats scale(int) const { return own; }
  };
};

template <>
struct Unpack<gguf::Block<GgufType::Nvfp4>> : Layout<2, 1, 2, 12, 24> {
  struct Scales {
    using Head = std::uint32_t;
    static constexpr bool kHasMinimum = false;
    Vector codes;

    PLANQ_INLINE Scales(const Rows&, const Head* heads) : codes(load(heads)) {}
    // Half of an unsigned float8_e4m3, whose bits are those of a float16 that is 2^7 times less.
    // The highest bit does not count, but in the code of a NaN, which is 0.
    PLANQ_INLINE Floats scale(int j) const {
      const Words x = reinterpret_cast<Words>(right_words(codes, 8 * j) & words(255));
      const Words half = (x == 0x7F ? x ^ x : x & 0x7F) << 7;
      return from_halves(reinterpret_cast<Vector>(half)) * floats(128);
    }
  };
  static constexpr int element(int unit, int, int piece) { return 32 * unit + 16 * piece; }
  PLANQ_INLINE static Vector raw(const Rows& rows, int i, int unit, int) {
    return rows.part(i, 4 + 16 * unit);
  }
  // Eight bytes have the sixteen codes of a piece.
  PLANQ_INLINE static Vector code(Vector raw, int, int, int piece) {
    const Vector low = nibbles(raw, 0), high = nibbles(raw, 1);
    return looked_up(kE2M1Table, piece ? high_pairs(low, high) : low_pairs(low, high));
  }
};

// --- Types in blocks of 256 ----------------------------------------------------------------------

template <>
struct Unpack<gguf::Block<GgufType::Q4_K>> : Layout<4, 2, 2, 0, 15> {
  using Scales = SixBits;
  static constexpr int element(int unit, int step, int piece) {
    return 64 * unit + 32 * piece + 16 * step;
  }
  PLANQ_INLINE static Vector raw(const Rows& rows, int i, int unit, int step) {
    return rows.part(i, 16 + 32 * unit + 16 * step);
  }
  PLANQ_INLINE static Vector code(Vector raw, int, int, int piece) { return nibbles(raw, piece); }
};

template <>
struct Unpack<gguf::Block<GgufType::Q5_K>> : Layout<4, 2, 2, 0, 31> {
  using Scales = SixBits;
  struct Raw {
    Vector low, high;
  };
  static constexpr int element(int unit, int step, int piece) {
    return 64 * unit + 32 * piece + 16 * step;
  }
  PLANQ_INLINE static Raw raw(const Rows& rows, int i, int unit, int step) {
    return {rows.part(i, 48 + 32 * unit + 16 * step), rows.part(i, 16 + 16 * step)};
  }
  PLANQ_INLINE static Vector code(const Raw& raw, int unit, int, int piece) {
    return nibbles(raw.low, piece) | (moved(raw.high, 2 * unit + piece, 4) & bytes(16));
  }
};

// A unit is sixteen bytes, of each half of the block two.
template <int kOffset, int kLargest>
struct Pairs : Layout<4, 1, 4, kOffset, kLargest> {
  static constexpr int element(int unit, int, int piece) {
    return 128 * (unit / 2) + 16 * (unit % 2) + 32 * piece;
  }
  PLANQ_INLINE static Vector pair(Vector raw, int piece) {
    return right(raw, 2 * piece) & bytes(3);
  }
};

template <>
struct Unpack<gguf::Block<GgufType::Q2_K>> : Pairs<0, 3> {
  struct Scales : LongBlock {
    static constexpr bool kHasMinimum = true;
    Floats own, least;  // of all; the minimum is negative
    RowWords both;

    PLANQ_INLINE Scales(const Rows& rows, const void*) : both(rows, 0) {
      const Vector numbers = RowWords(rows, 68)[3];
      own = from_halves(numbers);
      least = negated(from_halves(right_words(numbers, 16)));
    }
    PLANQ_INLINE static Floats nibble(Vector v, int place) {
      return to_floats(right_words(v, 4 * place) & words(15));
    }
    PLANQ_INLINE Floats scale(int j) const { return own * nibble(both[j / 4], 2 * (j % 4)); }
    PLANQ_INLINE Floats minimum(int j) const {
      return least * nibble(both[j / 4], 2 * (j % 4) + 1);
    }
  };
  PLANQ_INLINE static Vector raw(const Rows& rows, int i, int unit, int) {
    return rows.part(i, 16 + 16 * unit);
  }
  PLANQ_INLINE static Vector code(Vector raw, int, int, int piece) { return pair(raw, piece); }
};

template <>
struct Unpack<gguf::Block<GgufType::Q3_K>> : Pairs<4, 7> {
  struct Raw {
    Vector low, high;
  };
  struct Scales : LongBlock {
    static constexpr bool kHasMinimum = false;
    Floats own;
    Vector scales[4];

    // The last sixteen bytes begin two bytes before the scales.
    PLANQ_INLINE Scales(const Rows& rows, const void*) {
      const RowWords tail(rows, 94);
      own = from_halves(right_words(tail[3], 16));
      Vector word[3];
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i)
        word[i] = right_words(tail[i], 16) |
                  reinterpret_cast<Vector>(reinterpret_cast<Words>(tail[i + 1]) << 16);
      const Vector four = words(0x0F0F0F0F), two = words(0x30303030);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        scales[i] =
            (right_words(word[i % 2], 4 * (i / 2)) & four) | (moved(word[2], 2 * i, 4) & two);
    }
    PLANQ_INLINE Floats scale(int j) const {
      return own * (byte_of(scales[j / 4], j % 4) - floats(32));
    }
  };
  PLANQ_INLINE static Raw raw(const Rows& rows, int i, int unit, int) {
    return {rows.part(i, 32 + 16 * unit), rows.part(i, 16 * (unit % 2))};
  }
  PLANQ_INLINE static Vector code(const Raw& raw, int unit, int, int piece) {
    return pair(raw.low, piece) | (moved(raw.high, 4 * (unit / 2) + piece, 2) & bytes(4));
  }
};

template <>
struct Unpack<gguf::Block<GgufType::Q6_K>> : Pairs<32, 63> {
  struct Raw {
    Vector low[2], high;
  };
  struct Scales : LongBlock {
    static constexpr bool kHasMinimum = false;
    Floats own;
    Vector scales[4];

    PLANQ_INLINE Scales(const Rows& rows, const void*)
        : own(from_halves(right_words(RowWords(rows, 194)[3], 16))) {
      const RowWords all(rows, 192);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) scales[i] = all[i];
    }
    PLANQ_INLINE Floats scale(int j) const { return own * signed_byte_of(scales[j / 4], j % 4); }
  };
  PLANQ_INLINE static Raw raw(const Rows& rows, int i, int unit, int) {
    const int at = 64 * (unit / 2) + 16 * (unit % 2);
    return {{rows.part(i, at), rows.part(i, at + 32)}, rows.part(i, 128 + 16 * unit)};
  }
  PLANQ_INLINE static Vector code(const Raw& raw, int, int, int piece) {
    return nibbles(raw.low[piece % 2], piece / 2) | (moved(raw.high, 2 * piece, 4) & bytes(48));
  }
};

template <>
struct Unpack<gguf::Block<GgufType::Iq4Xs>>
    : TableNibbles<WideLayout<8, 1, 2>, 8, kNonLinearTable> {
  struct Scales : LongBlock {
    static constexpr bool kHasMinimum = false;
    Floats own;
    Vector low, high;

    PLANQ_INLINE Scales(const Rows& rows, const void*) {
      const RowWords head(rows, 0);
      own = from_halves(head[0]);
      high = right_words(head[0], 16);
      low = head[1];
    }
    PLANQ_INLINE Floats scale(int j) const {
      const Vector six =
          (right_words(low, 4 * j) & words(15)) |
          (reinterpret_cast<Vector>(reinterpret_cast<Words>(high) << 4 >> 2 * j) & words(48));
      return own * (to_floats(six) - floats(32));
    }
  };
};

// A unit is 32 elements: of each of 32 bytes the same digit to base 3, or two digits of sixteen
// bytes; of the last sixteen elements, four neighbours are the same digit of four bytes.
template <>
struct Unpack<gguf::Block<GgufType::Tq1_0>> : Layout<8, 2, 1, 1, 2> {
  using Scales = LastScale<52>;
  static constexpr int element(int unit, int step, int) { return 32 * unit + 16 * step; }
  PLANQ_INLINE static Vector raw(const Rows& rows, int i, int unit, int step) {
    return rows.part(i, unit < 5 ? 16 * step : unit < 7 || step == 0 ? 32 : 36);
  }
  PLANQ_INLINE static Vector code(Vector raw, int unit, int step, int) {
    if (unit == 7 && step == 1) return last(raw);
    const int place = unit < 5 ? unit : 2 * (unit - 5) + step;
    return digit(raw, place == 0   ? words(0x00010001)
                      : place == 1 ? words(0x00030003)
                      : place == 2 ? words(0x00090009)
                      : place == 3 ? words(0x001B001B)
                                   : words(0x00510051));
  }

 private:
  // A byte is a fraction of 256; `power`: of 3, for each two bytes.
  PLANQ_INLINE static Vector digit(Vector raw, Vector power) {
    const Halves by = reinterpret_cast<Halves>(power);
    const Halves low = reinterpret_cast<Halves>(raw) * by & 255;
    const Halves high = (reinterpret_cast<Halves>(raw) >> 8) * by & 255;
    return reinterpret_cast<Vector>((low * 3 >> 8) | (high * 3 & 0x0300));
  }
  PLANQ_INLINE static Vector last(Vector raw) {
    static constexpr Table kBytes = {
        {12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15}};
    static constexpr Table kPowers = {{1, 0, 1, 0, 3, 0, 3, 0, 9, 0, 9, 0, 27, 0, 27, 0}};
    return digit(looked_up(raw, repeated(kBytes.entries)), repeated(kPowers.entries));
  }
};

template <>
struct Unpack<gguf::Block<GgufType::Tq2_0>> : Layout<2, 2, 4, 1, 3> {
  using Scales = LastScale<64>;
  static constexpr int element(int unit, int step, int piece) {
    return 128 * unit + 32 * piece + 16 * step;
  }
  PLANQ_INLINE static Vector raw(const Rows& rows, int i, int unit, int step) {
    return rows.part(i, 32 * unit + 16 * step);
  }
  PLANQ_INLINE static Vector code(Vector raw, int, int, int piece) {
    return right(raw, 2 * piece) & bytes(3);
  }
};

// --- Types of one and two bits -------------------------------------------------------------------

template <>
struct Unpack<gguf::Block<GgufType::Q1_0>> : Layout<4, 1, 2, 1, 2> {
  using Scales = OneScale;
  struct Raw {
    Vector half[2];
  };
  static constexpr int element(int unit, int, int piece) { return 32 * unit + 16 * piece; }
  PLANQ_INLINE static Raw raw(const Rows& rows, int i, int unit, int) {
    Raw raw;
    rows.bits(i, 2 + 4 * unit, 2, raw.half);
    return raw;
  }
  PLANQ_INLINE static Vector code(const Raw& raw, int, int, int piece) { return raw.half[piece]; }
};

template <>
struct Unpack<gguf::Block<GgufType::Q2_0>> : Layout<2, 2, 1, 1, 3> {
  using Scales = OneScale;
  static constexpr int element(int unit, int step, int) { return 32 * unit + 16 * step; }
  PLANQ_INLINE static Vector raw(const Rows& rows, int i, int, int) { return rows.part(i, 2); }
  // Each of four bytes is repeated four times, and moved until its code is lowest.
  PLANQ_INLINE static Vector code(Vector raw, int unit, int step, int) {
    static constexpr Table kBytes = {{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}};
    const Vector byte = looked_up(raw, repeated(kBytes.entries) | bytes(4 * (2 * unit + step)));
    const Vector nibble = (byte & words(0x00000F0F)) | (right(byte, 4) & words(0x0F0F0000));
    return (nibble & words(0x00030003)) | (right(nibble, 2) & words(0x03000300));
  }
};

}  // namespace planq::gguf::products::PLANQ_LEVEL
