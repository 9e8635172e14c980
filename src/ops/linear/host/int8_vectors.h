// Gemms of codes as 16-bit numbers, by vectors of AVX-512, AVX2, SSE2 or plain C++. No include
// guard, like the other parts of int8_loops.h, which includes this for each instruction set without
// VNNI.

namespace planq::host::PLANQ_LEVEL {

// --- Vectors -------------------------------------------------------------------------------------

// Each instruction set has the same names: Vector, how many of them make a row of a tile
// (kVectors), load, store, repeated (a word in every lane), multiply_add (to each lane the products
// of two pairs of 16-bit numbers) and widened (bytes as 16-bit numbers, a vector full).
#if PLANQ_SIMD_X86 && PLANQ_VECTOR_BYTES == 64
using Vector = __m512i;
constexpr int kVectors = 4;
inline Vector load(const void* from) { return _mm512_loadu_si512(from); }
inline void store(void* to, Vector v) { _mm512_storeu_si512(to, v); }
inline Vector repeated(std::int32_t word) { return _mm512_set1_epi32(word); }
inline Vector multiply_add(Vector sum, Vector a, Vector b) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
}
template <bool kUnsigned>
inline Vector widened(const std::uint8_t* from) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return kUnsigned ? _mm512_cvtepu8_epi16(bytes) : _mm512_cvtepi8_epi16(bytes);
}
#elif PLANQ_SIMD_X86 && PLANQ_VECTOR_BYTES == 32
using Vector = __m256i;
constexpr int kVectors = 2;
inline Vector load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
inline void store(void* to, Vector v) { _mm256_storeu_si256(static_cast<__m256i*>(to), v); }
inline Vector repeated(std::int32_t word) { return _mm256_set1_epi32(word); }
inline Vector multiply_add(Vector sum, Vector a, Vector b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
template <bool kUnsigned>
inline Vector widened(const std::uint8_t* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return kUnsigned ? _mm256_cvtepu8_epi16(bytes) : _mm256_cvtepi8_epi16(bytes);
}
#elif PLANQ_SIMD_X86
using Vector = __m128i;
constexpr int kVectors = 2;
inline Vector load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
inline void store(void* to, Vector v) { _mm_storeu_si128(static_cast<__m128i*>(to), v); }
inline Vector repeated(std::int32_t word) { return _mm_set1_epi32(word); }
inline Vector multiply_add(Vector sum, Vector a, Vector b) {
  return _mm_add_epi32(sum, _mm_madd_epi16(a, b));
}
template <bool kUnsigned>
inline Vector widened(const std::uint8_t* from) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return kUnsigned ? _mm_unpacklo_epi8(bytes, _mm_setzero_si128())
                   : _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
}
#else
struct Vector {
  std::uint32_t word[4];
};
constexpr int kVectors = 2;
inline Vector load(const void* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
inline void store(void* to, const Vector& v) { std::memcpy(to, &v, sizeof v); }
inline Vector repeated(std::int32_t word) {
  const auto bits = static_cast<std::uint32_t>(word);
  return {{bits, bits, bits, bits}};
}
inline std::uint32_t product_of_halves(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(static_cast<std::int16_t>(a & 0xFFFF) *
                                    static_cast<std::int16_t>(b & 0xFFFF));
}
inline Vector multiply_add(Vector sum, const Vector& a, const Vector& b) {
  for (int i = 0; i < 4; ++i)
    sum.word[i] += product_of_halves(a.word[i], b.word[i]) +
                   product_of_halves(a.word[i] >> 16, b.word[i] >> 16);
  return sum;
}
template <bool kUnsigned>
inline Vector widened(const std::uint8_t* from) {
  std::int16_t numbers[8];
  for (int i = 0; i < 8; ++i)
    numbers[i] = static_cast<std::int16_t>(kUnsigned ? from[i] : static_cast<std::int8_t>(from[i]));
  return load(numbers);
}
#endif

// --- Panels --------------------------------------------------------------------------------------

// The names are those of int8_vnni.h. What packed operands are made of: a 16-bit number.
using Cell = std::int16_t;
constexpr int kGroup = 2;  // terms whose products one lane adds up
constexpr int kLanes = sizeof(Vector) / 4, kColumns = kVectors * kLanes;
constexpr int kTileRows = 6;
constexpr std::int64_t kTerms = 128, kPackedRows = kTileRows, kLongTerms = kTerms;
constexpr std::int64_t kLineTerms = kTerms, kLineRows = kPackedRows;
constexpr std::int64_t kPackedCells = kPackedRows * kTerms;
constexpr std::int64_t kStripSums = 0, kStripRows = 0;  // there are no strips
constexpr std::int64_t kFew = 32;
constexpr bool kDotsUnpack = false;

// 16-bit numbers have their signs: no bit is flipped.
struct Signs {
  bool input_unsigned;
  std::uint8_t flip = 0;
  std::int32_t correction = 0;

  explicit Signs(const Gemm& p) : input_unsigned(p.input.dtype == DType::UInt8) {}
};

// Bytes as 16-bit numbers, `step` cells apart.
inline void widen_codes(const std::uint8_t* codes, std::int64_t count, bool is_unsigned,
                        std::int64_t step, Cell* to) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i * step] = static_cast<Cell>(is_unsigned ? codes[i] : static_cast<std::int8_t>(codes[i]));
}

// Packs a column's terms, from a row of weights. Each group of two stands beside the same group of
// the next column.
template <bool kUnsigned>
inline void pack_column(const std::uint8_t* row, std::int64_t terms, Cell* to) {
  std::int32_t pairs[kLanes];
  std::int64_t term = 0;
  for (; term + kLanes * kGroup <= terms; term += kLanes * kGroup) {
    store(pairs, widened<kUnsigned>(row + term));
    for (int i = 0; i < kLanes; ++i, to += kGroup * kColumns)
      std::memcpy(to, &pairs[i], sizeof pairs[i]);
  }
  for (; term < terms; ++term)
    widen_codes(row + term, 1, kUnsigned, 1,
                to + (term % (kLanes * kGroup)) / kGroup * kGroup * kColumns + term % kGroup);
}

// Group (place, column) of a panel has two terms of a column.
inline void pack_panel(const GemmOperand& weight, const Slice& s, const Signs&, Cell* panel) {
  std::uint8_t room[kTerms];
  const bool is_unsigned = weight.dtype == DType::UInt8;
  std::memset(panel, 0, sizeof(Cell) * kTerms * kColumns);
  if (weight.transposed()) {
    for (std::int64_t term = 0; term < s.terms; ++term) {
      const std::uint8_t* line =
          line_of(weight, s.column + (s.term + term) * weight.term_stride, s.columns, room);
      widen_codes(line, s.columns, is_unsigned, kGroup,
                  panel + term / kGroup * kGroup * kColumns + term % kGroup);
    }
    return;
  }
  for (std::int64_t column = 0; column < s.columns; ++column) {
    const std::uint8_t* row = terms_of(weight, s.column + column, s.term, s.terms, room);
    (is_unsigned ? pack_column<true> : pack_column<false>)(row, s.terms, panel + column * kGroup);
  }
}

// Rows of the input as tiles read them: the word of a row's two terms of a group is at
// row * row_step + group * group_step.
struct Rows {
  const Cell* data;
  std::int64_t row_step, group_step;
};

// Packs at most kPackedRows rows. A term that completes a group is 0.
inline Rows pack_rows(const GemmOperand& input, std::int64_t row, std::int64_t rows, const Slice& s,
                      Cell* packed) {
  std::uint8_t room[kTerms];
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::uint8_t* from = terms_of(input, row + i, s.term, s.terms, room);
    widen_codes(from, s.terms, input.dtype == DType::UInt8, 1, packed + i * kTerms);
    if (s.terms < kTerms) packed[i * kTerms + s.terms] = 0;
  }
  return {packed, kTerms, kGroup};
}

// Adds kRows rows times a panel. `start`: what the rows' sums begin at; null: they have begun.
template <bool, int kRows>
void add_tile(const Rows& rows, const Cell* panel, std::int64_t groups, const std::int32_t* start,
              const Sums& sums) {
  Vector sum[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      sum[r][j] = start ? repeated(start[r]) : load(sums.of(r) + j * kLanes);
  const Cell* input = rows.data;
  for (std::int64_t group = 0; group < groups;
       ++group, panel += kGroup * kColumns, input += rows.group_step) {
    Vector weight[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) weight[j] = load(panel + j * kGroup * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      std::int32_t word;
      std::memcpy(&word, input + r * rows.row_step, sizeof word);
      const Vector pair = repeated(word);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[r][j] = multiply_add(sum[r][j], pair, weight[j]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) store(sums.of(r) + j * kLanes, sum[r][j]);
}

// --- Dots ----------------------------------------------------------------------------------------

template <bool kUnsigned>
inline std::uint32_t number_of(std::uint8_t code) {
  return static_cast<std::uint32_t>(kUnsigned ? code : static_cast<std::int8_t>(code));
}

// The sum over the lanes.
inline std::uint32_t total(Vector sum) {
  std::uint32_t words[kLanes], all = 0;
  store(words, sum);
  for (const std::uint32_t word : words) all += word;
  return all;
}

// Adds the dots of kRows rows of the input, 2 or 1, with kWeights columns, 4 or 1.
template <bool kInputUnsigned, bool kWeightUnsigned, int kRows, int kWeights>
inline void add_columns(const Dots& dots, std::int64_t column, std::int32_t* sums) {
  constexpr std::int64_t kStep = kLanes * kGroup;
  Vector sum[kRows][kWeights];
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kWeights; ++j) sum[r][j] = repeated(0);
  std::int64_t i = 0;
  for (; i + kStep <= dots.count; i += kStep) {
    Vector input[kRows];
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) input[r] = widened<kInputUnsigned>(dots.inputs[r] + i);
#pragma GCC unroll 4
    for (int j = 0; j < kWeights; ++j) {
      const std::uint8_t* from = dots.weight(column + j) + i;
      __builtin_prefetch(from + dots.ahead);
      const Vector weight = widened<kWeightUnsigned>(from);
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r) sum[r][j] = multiply_add(sum[r][j], input[r], weight);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kWeights; ++j) {
      std::uint32_t all = total(sum[r][j]);
      for (std::int64_t term = i; term < dots.count; ++term)
        all += number_of<kInputUnsigned>(dots.inputs[r][term]) *
               number_of<kWeightUnsigned>(dots.weight(column + j)[term]);
      std::int32_t& to = sums[r * dots.pitch + column + j];
      to = static_cast<std::int32_t>(static_cast<std::uint32_t>(to) + all);
    }
}

// Adds the dots of kRows rows with all columns.
template <bool kInputUnsigned, bool kWeightUnsigned, int kRows>
void add_dots(const Dots& given, std::int32_t* sums) {
  const Dots dots = given;
  std::int64_t column = 0;
  for (; column + 4 <= dots.columns; column += 4)
    add_columns<kInputUnsigned, kWeightUnsigned, kRows, 4>(dots, column, sums);
  for (; column < dots.columns; ++column)
    add_columns<kInputUnsigned, kWeightUnsigned, kRows, 1>(dots, column, sums);
}

// The same for a number of rows that is known at run time, up to four.
template <bool kInputUnsigned>
void add_few_dots(const Gemm& p, Dots dots, std::int64_t rows, std::int32_t* sums) {
  const bool is_unsigned = p.weight.dtype == DType::UInt8;
  for (; rows > 1; rows -= 2, dots.inputs += 2, sums += 2 * dots.pitch)
    is_unsigned ? add_dots<kInputUnsigned, true, 2>(dots, sums)
                : add_dots<kInputUnsigned, false, 2>(dots, sums);
  if (rows == 0) return;
  is_unsigned ? add_dots<kInputUnsigned, true, 1>(dots, sums)
              : add_dots<kInputUnsigned, false, 1>(dots, sums);
}

// Nothing needs the sums of the input's rows.
template <bool>
void sum_input(const Gemm&, const Block&, std::int32_t*) {}

}  // namespace planq::host::PLANQ_LEVEL
