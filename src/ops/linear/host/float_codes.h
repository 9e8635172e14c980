// Panels of codes apart from their scales, of GroupsSm90. Rows and columns change places while
// codes are words of several codes, which become numbers afterwards: with numbers that would take
// longer than the products of a row or two. No include guard, like the other parts of
// float_loops.h.

namespace planq::host::PLANQ_LEVEL::floating {

#if PLANQ_VECTOR_BYTES == 64

// Whether codes less their zero points are numbers that need no rounding to their type. Those of 8
// bits may need it in bfloat16.
inline bool are_exact(const linear::WeightCodes& codes) {
  if (!codes.zero_point || is_four_bit(codes.dtype) || codes.values == DType::Float16) return true;
  return codes.dtype == DType::UInt8 && codes.zero_point_dtype == DType::UInt8;
}

// Whether widen_codes reads these codes. Others are read row by row: floats of 8 bits, layouts in
// tiles, rows that begin in the middle of a byte, and numbers that have to be rounded.
inline bool are_words(const linear::WeightCodes& codes, int terms) {
  if (codes.layout != WeightLayout::RowMajor || terms % kFloatLanes != 0) return false;
  if (is_four_bit(codes.dtype)) return codes.row_stride % 2 == 0;
  return !is_fp8(codes.dtype) && are_exact(codes);
}

// Word w of each of kFloatLanes rows in vector w. The last row stands for missing ones.
inline void load_words(const std::uint8_t* data, std::int64_t row_bytes, std::int64_t rows,
                       int words, Floats (&to)[kFloatLanes]) {
  const auto kept = static_cast<__mmask16>((1u << words) - 1);
#pragma GCC unroll 16
  for (int r = 0; r < kFloatLanes; ++r) {
    to[r] = reinterpret_cast<Floats>(_mm512_maskz_loadu_epi32(kept, data));
    if (r + 1 < rows) data += row_bytes;
  }
  transpose(to);
}

// Exponents of integers.
inline Ints exponents_of_integers(Floats x) {
  const Ints magnitude = reinterpret_cast<Ints>(x) & 0x7FFFFFFF;
  return magnitude == 0 ? repeated(kZeroExponent) : (magnitude >> 23) - 127;
}

// Numbers and exponents of the codes in a word of each column of a panel.
struct Columns {
  Floats low, high;
};
inline void store_numbers(WidePanel& panel, int term, const Columns& numbers) {
  *reinterpret_cast<Floats*>(panel.values[term]) = numbers.low;
  *reinterpret_cast<Floats*>(panel.values[term] + kFloatLanes) = numbers.high;
}
inline void store_integers(WidePanel& panel, int term, const Columns& numbers) {
  store_numbers(panel, term, numbers);
  *reinterpret_cast<Ints*>(panel.exponents[term]) =
      paired(exponents_of_integers(numbers.low), exponents_of_integers(numbers.high));
}

// 4-bit codes stand for the numbers of a table. A look-up takes the low bits of an index alone.
template <NibbleOrder kOrder>
struct Nibbles {
  static constexpr int kCodes = 8;  // of a word
  Floats numbers;
  __m512i exponents;  // twice, in 16 bits

  static constexpr int nibble_of(int code) {
    return kOrder == NibbleOrder::LowFirst ? code : code ^ 1;
  }

  Nibbles(linear::WeightCodes codes, int smallest) {
    codes.zero_point = nullptr;
    alignas(64) float values[16];
    load_values(codes, 0, 0, values);
    numbers = load(values);
    const Ints own = exponents_of(numbers, smallest);
    alignas(64) std::int16_t twice[32];
    for (int i = 0; i < 32; ++i) twice[i] = static_cast<std::int16_t>(own[i % 16]);
    exponents = reinterpret_cast<__m512i>(load(twice));
  }
  Floats number(Floats word, int nibble) const {
    return reinterpret_cast<Floats>(_mm512_maskz_permutexvar_ps(
        0xFFFF, reinterpret_cast<__m512i>(reinterpret_cast<Words>(word) >> 4 * nibble),
        reinterpret_cast<__m512>(numbers)));
  }

  void widen(const Columns& words, WidePanel& panel, int term) const {
    const auto low = reinterpret_cast<Words>(words.low), high = reinterpret_cast<Words>(words.high);
    // Four codes of a column are 16 bits in the place that its exponents have.
    const Words places[] = {(low & 0xFFFF) | (high << 16), (low >> 16) | (high & 0xFFFF0000)};
#pragma GCC unroll 8
    for (int j = 0; j < kCodes; ++j) {
      const int nibble = nibble_of(j);
      store_numbers(panel, term + j, {number(words.low, nibble), number(words.high, nibble)});
      const __m512i place =
          _mm512_maskz_srli_epi16(~__mmask32{}, reinterpret_cast<__m512i>(places[nibble / 4]),
                                  static_cast<unsigned>(nibble % 4 * 4));
      *reinterpret_cast<__m512i*>(panel.exponents[term + j]) =
          _mm512_maskz_permutexvar_epi16(~__mmask32{}, place, exponents);
    }
  }
  void widen(const Columns& words, const Columns& zero_points, WidePanel& panel, int term) const {
#pragma GCC unroll 8
    for (int j = 0; j < kCodes; ++j)
      store_integers(panel, term + j,
                     {number(words.low, nibble_of(j)) - zero_points.low,
                      number(words.high, nibble_of(j)) - zero_points.high});
  }
};

// Integers of 8 bits.
struct Bytes {
  static constexpr int kCodes = 4;
  bool is_signed;

  Bytes(const linear::WeightCodes& codes, int) : is_signed(codes.dtype == DType::Int8) {}
  Floats number(Floats word, int byte) const {
    const Ints high = reinterpret_cast<Ints>(word) << (24 - 8 * byte);
    const Ints integer =
        is_signed ? high >> 24 : reinterpret_cast<Ints>(reinterpret_cast<Words>(high) >> 24);
    return __builtin_convertvector(integer, Floats);
  }

  void widen(const Columns& words, WidePanel& panel, int term) const {
    widen(words, {Floats{}, Floats{}}, panel, term);
  }
  void widen(const Columns& words, const Columns& zero_points, WidePanel& panel, int term) const {
#pragma GCC unroll 4
    for (int j = 0; j < kCodes; ++j)
      store_integers(
          panel, term + j,
          {number(words.low, j) - zero_points.low, number(words.high, j) - zero_points.high});
  }
};

// The zero points of the columns for a term's segment.
inline Columns zero_points_of(const linear::WeightCodes& codes, std::int64_t column,
                              std::int64_t columns, std::int64_t term) {
  alignas(64) float own[kPanelColumns] = {};
  for (std::int64_t c = 0; c < columns; ++c)
    own[c] = static_cast<float>(linear::zero_point_at(codes, column + c, term));
  return {load(own), load(own + kFloatLanes)};
}

// Not inlined: its words would be on the stack beside what calls it.
template <class Kind>
[[gnu::noinline]] void widen_words(const linear::WeightCodes& codes, int smallest,
                                   std::int64_t column, std::int64_t columns, std::int64_t term,
                                   int terms, WidePanel& panel) {
  constexpr int kWordTerms = Kind::kCodes * kFloatLanes;
  const Kind kind(codes, smallest);
  const std::int64_t row_bytes = codes.row_stride * 4 / Kind::kCodes;
  Columns zero_points = {};
  for (int first = 0; first < terms; first += kWordTerms) {
    Floats words[kPanelVectors][kFloatLanes];
    const int count = std::min(kWordTerms, terms - first) / Kind::kCodes;
    for (int v = 0; v < kPanelVectors; ++v) {
      const std::int64_t row = column + std::min<std::int64_t>(v * kFloatLanes, columns - 1);
      load_words(codes.data + row * row_bytes + (term + first) * 4 / Kind::kCodes, row_bytes,
                 column + columns - row, count, words[v]);
    }
    for (int w = 0; w < count; ++w) {
      const int i = first + w * Kind::kCodes;
      const Columns own = {words[0][w], words[1][w]};
      if (!codes.zero_point) {
        kind.widen(own, panel, i);
        continue;
      }
      if (i == 0 || (term + i) % codes.segment_size == 0)
        zero_points = zero_points_of(codes, column, columns, term + i);
      kind.widen(own, zero_points, panel, i);
    }
  }
}

// widen_panel for codes apart from their scales. Terms are whole groups of a tensor core.
inline void widen_codes(const GemmOperand& weight, std::int64_t column, std::int64_t columns,
                        std::int64_t term, int terms, WidePanel& panel) {
  const linear::WeightCodes& codes = *weight.codes;
  if (!are_words(codes, terms)) return widen_panel(weight, column, columns, term, terms, panel);
  const int smallest = format_of(weight.dtype).smallest_exponent();
  if (!is_four_bit(codes.dtype))
    widen_words<Bytes>(codes, smallest, column, columns, term, terms, panel);
  else if (codes.nibble_order == NibbleOrder::LowFirst)
    widen_words<Nibbles<NibbleOrder::LowFirst>>(codes, smallest, column, columns, term, terms,
                                                panel);
  else
    widen_words<Nibbles<NibbleOrder::HighFirst>>(codes, smallest, column, columns, term, terms,
                                                 panel);
}

#else

inline void widen_codes(const GemmOperand& weight, std::int64_t column, std::int64_t columns,
                        std::int64_t term, int terms, WidePanel& panel) {
  widen_panel(weight, column, columns, term, terms, panel);
}

#endif

}  // namespace planq::host::PLANQ_LEVEL::floating
