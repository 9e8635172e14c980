// Gemms of bytes by AVX-512 with VNNI. No include guard, like the other parts of int8_loops.h,
// which includes this for that instruction set alone.
//
// Its instruction multiplies unsigned bytes with signed ones. Where input and weights are both
// signed or both unsigned, the weights' top bits are flipped, which makes every weight 128 more or
// 128 less. Likewise int4 becomes 0 to 15, which is 8 more. To make up for it, sums begin at a
// correction: -128, 128 or -8 times the sum of the input's row.

namespace planq::host::PLANQ_LEVEL {

// What packed operands are made of: a code.
using Cell = std::uint8_t;
constexpr int kGroup = 4;  // terms whose products one lane adds up
constexpr int kVectors = 4, kColumns = 64, kTileRows = 6;
// Terms of a panel, and rows of the input that are packed at a time.
constexpr std::int64_t kTerms = 256, kPackedRows = 32;
// The same of a transposed input, which is packed line by line.
constexpr std::int64_t kLineTerms = 128, kLineRows = 60;
constexpr std::int64_t kPackedCells = 64 * kLineTerms;
// Terms of a panel that has the stack to itself, since sums are in the output.
constexpr std::int64_t kLongTerms = 512;
// Up to so many rows, or columns, packing a panel does not pay.
constexpr std::int64_t kFew = 15;
constexpr bool kDotsUnpack = true;  // whether dots unpack 4-bit weights as they read them

// Which bits of the weights are flipped, and what a sum has to begin at for it.
struct Signs {
  bool input_unsigned;
  std::uint8_t flip = 0;
  std::int32_t correction = 0;  // times the sum of the input's row

  explicit Signs(const Gemm& p) : input_unsigned(p.input.dtype == DType::UInt8) {
    if (p.weight.dtype == DType::Int4) {
      flip = 8;
      correction = -8;
    } else if (p.weight.dtype != DType::UInt4 &&
               input_unsigned == (p.weight.dtype == DType::UInt8)) {
      flip = 0x80;
      correction = input_unsigned ? 128 : -128;
    }
  }
};

// Selects the first `count` bytes of a vector, at most all.
inline __mmask64 first_bytes(std::int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

// Adds to each lane the products of its four bytes.
template <bool kInputUnsigned>
inline __m512i multiply_add(__m512i sum, __m512i input, __m512i weight) {
  return kInputUnsigned ? _mm512_dpbusd_epi32(sum, input, weight)
                        : _mm512_dpbusd_epi32(sum, weight, input);
}

// The sums over the lanes of four vectors.
inline __m128i totals(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  const __m512i all =
      _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m256i half =
      _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// 16 bytes of each of four lines.
inline __m512i four_lines(const std::uint8_t* const (&lines)[4]) {
  __m512i v = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[0])));
  v = _mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[1])), 1);
  v = _mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[2])), 2);
  return _mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[3])), 3);
}

// Transposes 16 lines of 16 words each; the results are `pitch` apart.
inline void transpose_words(const std::uint8_t (&lines)[16][64], std::int64_t pitch, Cell* to) {
  for (int byte = 0; byte < 64; byte += 16, to += 4 * pitch) {
    __m512i v[4];  // of lines i, 4 + i, 8 + i and 12 + i
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      v[i] = four_lines(
          {lines[i] + byte, lines[4 + i] + byte, lines[8 + i] + byte, lines[12 + i] + byte});
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    _mm512_store_si512(to, _mm512_unpacklo_epi64(a, c));
    _mm512_store_si512(to + pitch, _mm512_unpackhi_epi64(a, c));
    _mm512_store_si512(to + 2 * pitch, _mm512_unpacklo_epi64(b, d));
    _mm512_store_si512(to + 3 * pitch, _mm512_unpackhi_epi64(b, d));
  }
}

// From four lines of 64 columns each, 64 words, one a column, of its four terms.
inline void interleave(const __m512i (&lines)[4], __m512i (&words)[4]) {
  const __m512i a = _mm512_unpacklo_epi8(lines[0], lines[1]);
  const __m512i b = _mm512_unpackhi_epi8(lines[0], lines[1]);
  const __m512i c = _mm512_unpacklo_epi8(lines[2], lines[3]);
  const __m512i d = _mm512_unpackhi_epi8(lines[2], lines[3]);
  const __m512i v0 = _mm512_unpacklo_epi16(a, c), v1 = _mm512_unpackhi_epi16(a, c);
  const __m512i v2 = _mm512_unpacklo_epi16(b, d), v3 = _mm512_unpackhi_epi16(b, d);
  // Lane l of v[j] has columns 16 l + 4 j and on.
  const __m512i p = _mm512_shuffle_i32x4(v0, v1, 0x44), q = _mm512_shuffle_i32x4(v2, v3, 0x44);
  const __m512i r = _mm512_shuffle_i32x4(v0, v1, 0xEE), s = _mm512_shuffle_i32x4(v2, v3, 0xEE);
  words[0] = _mm512_shuffle_i32x4(p, q, 0x88);
  words[1] = _mm512_shuffle_i32x4(p, q, 0xDD);
  words[2] = _mm512_shuffle_i32x4(r, s, 0x88);
  words[3] = _mm512_shuffle_i32x4(r, s, 0xDD);
}

// The same of at most four terms of at most 64 rows of a transposed operand. Whatever is missing is
// 0, with the bits of `flipped` flipped as in all codes.
inline void words_of_lines(const GemmOperand& operand, std::int64_t row, std::int64_t rows,
                           std::int64_t term, std::int64_t terms, std::uint8_t flipped,
                           __m512i (&words)[4]) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(flipped));
  alignas(64) std::uint8_t room[64];
  const __mmask64 mask = first_bytes(rows);
  __m512i lines[kGroup];
  for (int i = 0; i < kGroup; ++i) {
    lines[i] = flip;
    if (i >= terms) continue;
    const std::uint8_t* line =
        line_of(operand, row + (term + i) * operand.term_stride, rows, room, flipped != 0);
    lines[i] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, line), flip);
  }
  interleave(lines, words);
}

// Packs 16 rows of weights as columns `from` and on of a panel of `width` columns, and prefetches
// the 16 rows that follow. 64 bytes of a row are copied in one go: rows a power of two apart evict
// one another from the cache.
inline void pack_rows_of_weight(const GemmOperand& weight, const Slice& s, int from, int width,
                                std::uint8_t flipped, Cell* panel) {
  alignas(64) std::uint8_t lines[16][64], room[64];
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(flipped));
  const auto columns = std::min<std::int64_t>(16, s.columns - from);
  for (std::int64_t i = std::max<std::int64_t>(0, columns); i < 16; ++i)
    _mm512_store_si512(lines[i], flip);
  for (std::int64_t term = 0; term < s.terms; term += 64) {
    const std::int64_t terms = std::min<std::int64_t>(64, s.terms - term);
    const __mmask64 mask = first_bytes(terms);
    std::int64_t first = (s.column + from) * weight.row_stride + s.term + term;
    for (std::int64_t i = 0; i < columns; ++i, first += weight.row_stride) {
      const std::uint8_t* codes = line_of(weight, first, terms, room, true);
      __builtin_prefetch(codes + 16 * weight.row_stride + 64);
      _mm512_store_si512(lines[i], _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, codes), flip));
    }
    transpose_words(lines, kGroup * width, panel + term * width + from * kGroup);
  }
}

// Word (group, column) of a panel has four terms of a column: those of a group.
inline void pack_panel(const GemmOperand& weight, const Slice& s, const Signs& signs, Cell* panel) {
  if (!weight.transposed()) {
    for (int from = 0; from < kColumns; from += 16)
      pack_rows_of_weight(weight, s, from, kColumns, signs.flip, panel);
    return;
  }
  for (std::int64_t term = 0; term < s.terms; term += kGroup) {
    __m512i words[4];
    words_of_lines(weight, s.column, s.columns, s.term + term, s.terms - term, signs.flip, words);
    for (int j = 0; j < 4; ++j) _mm512_store_si512(panel + term * kColumns + j * 64, words[j]);
  }
}

// Rows of the input as tiles read them: the word of a row's four terms of a group is at
// row * row_step + group * group_step.
struct Rows {
  const Cell* data;
  std::int64_t row_step, group_step;
};

// Packs at most kPackedRows rows, or kLineRows of a transposed input. Terms that complete a group
// are 0.
inline Rows pack_rows(const GemmOperand& input, std::int64_t row, std::int64_t rows, const Slice& s,
                      Cell* packed) {
  alignas(64) std::uint8_t room[64];
  if (!input.transposed()) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t term = 0; term < s.terms; term += 64) {
        const std::int64_t terms = std::min<std::int64_t>(64, s.terms - term);
        const std::uint8_t* from =
            line_of(input, (row + i) * input.row_stride + s.term + term, terms, room);
        _mm512_store_si512(packed + i * kTerms + term,
                           _mm512_maskz_loadu_epi8(first_bytes(terms), from));
      }
    return {packed, kTerms, kGroup};
  }
  for (std::int64_t term = 0; term < s.terms; term += kGroup) {
    __m512i words[4];
    words_of_lines(input, row, rows, s.term + term, s.terms - term, 0, words);
    for (int j = 0; j < 4; ++j) _mm512_store_si512(packed + term * 64 + j * 64, words[j]);
  }
  return {packed, kGroup, kGroup * 64};
}

inline __m512i broadcast(const Cell* from) {
  std::int32_t word;
  std::memcpy(&word, from, sizeof word);
  return _mm512_set1_epi32(word);
}

// Adds kRows rows times a panel. `start`: what the rows' sums begin at; null: they have begun.
template <bool kInputUnsigned, int kRows>
void add_tile(const Rows& rows, const Cell* panel, std::int64_t groups, const std::int32_t* start,
              const Sums& sums) {
  __m512i sum[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      sum[r][j] = start ? _mm512_set1_epi32(start[r]) : _mm512_loadu_si512(sums.of(r) + j * 16);
  const Cell* input = rows.data;
  for (std::int64_t group = 0; group < groups; ++group, panel += 256, input += rows.group_step) {
    __m512i weight[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) weight[j] = _mm512_load_si512(panel + j * 64);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512i word = broadcast(input + r * rows.row_step);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        sum[r][j] = multiply_add<kInputUnsigned>(sum[r][j], word, weight[j]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) _mm512_storeu_si512(sums.of(r) + j * 16, sum[r][j]);
}

// --- Dots ----------------------------------------------------------------------------------------

// 64 codes of a byte, or the first `left` of them and zeros. kWhole: there are 64.
template <bool kWhole>
inline __m512i load_bytes(const std::uint8_t* from, std::int64_t left) {
  if constexpr (kWhole) return _mm512_loadu_si512(from);
  return _mm512_maskz_loadu_epi8(first_bytes(left), from);
}

// The same from `first` on, with 4-bit codes unpacked, as 0 to 15.
template <bool kFourBit, bool kWhole>
inline __m512i load_codes(const std::uint8_t* row, std::int64_t first, std::int64_t left) {
  if constexpr (!kFourBit) return load_bytes<kWhole>(row + first, left);
  const auto mask = static_cast<__mmask32>(first_bytes((left + 1) / 2));
  const __m256i packed = _mm256_maskz_loadu_epi8(kWhole ? ~__mmask32{0} : mask, row + first / 2);
  const __m512i pairs = _mm512_cvtepu8_epi16(packed);
  const __m512i low = _mm512_set1_epi16(0x000F), high = _mm512_set1_epi16(0x0F00);
  return _mm512_or_si512(_mm512_and_si512(pairs, low),
                         _mm512_and_si512(_mm512_slli_epi16(pairs, 4), high));
}

// Adds 64 terms, or as many as are left, of kRows rows times kWeights columns from `column` on.
template <bool kInputUnsigned, bool kFourBit, bool kWhole, int kRows, int kWeights>
inline void add_terms(const Dots& dots, std::int64_t column, std::int64_t first, __m512i flip,
                      __m512i (&sum)[kRows][4]) {
  const std::int64_t left = dots.count - first;
  __m512i weight[kWeights];
#pragma GCC unroll 4
  for (int j = 0; j < kWeights; ++j) {
    const std::uint8_t* row = dots.weight(column + j);
    __builtin_prefetch(row + (kFourBit ? first / 2 : first) + dots.ahead);
    weight[j] = _mm512_xor_si512(load_codes<kFourBit, kWhole>(row, first, left), flip);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m512i input = load_bytes<kWhole>(dots.inputs[r] + first, left);
#pragma GCC unroll 4
    for (int j = 0; j < kWeights; ++j)
      sum[r][j] = multiply_add<kInputUnsigned>(sum[r][j], input, weight[j]);
  }
}

// Adds the dots of kRows rows of the input with kWeights columns, 4 or 1.
template <bool kInputUnsigned, bool kFourBit, int kRows, int kWeights>
inline void add_columns(const Dots& dots, std::int64_t column, __m512i flip, std::int32_t* sums) {
  __m512i sum[kRows][4];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sum[r][j] = _mm512_setzero_si512();
  std::int64_t i = 0;
  for (; i + 64 <= dots.count; i += 64)
    add_terms<kInputUnsigned, kFourBit, true, kRows, kWeights>(dots, column, i, flip, sum);
  if (i < dots.count)
    add_terms<kInputUnsigned, kFourBit, false, kRows, kWeights>(dots, column, i, flip, sum);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m128i all = totals(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
    auto* to = reinterpret_cast<__m128i*>(sums + r * dots.pitch + column);
    if constexpr (kWeights == 4)
      _mm_storeu_si128(to, _mm_add_epi32(_mm_loadu_si128(to), all));
    else
      sums[r * dots.pitch + column] += _mm_cvtsi128_si32(all);
  }
}

// Adds the dots of kRows rows with all columns.
template <bool kInputUnsigned, bool kFourBit, int kRows>
void add_dots(const Dots& given, std::uint8_t flipped, std::int32_t* sums) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(flipped));
  const Dots dots = given;
  std::int64_t column = 0;
  for (; column + 4 <= dots.columns; column += 4)
    add_columns<kInputUnsigned, kFourBit, kRows, 4>(dots, column, flip, sums);
  for (; column < dots.columns; ++column)
    add_columns<kInputUnsigned, kFourBit, kRows, 1>(dots, column, flip, sums);
}

// The same for a number of rows that is known at run time, up to four.
template <bool kInputUnsigned, int kRows = 4>
void add_few_dots(const Gemm& p, const Dots& dots, std::int64_t rows, std::int32_t* sums) {
  if constexpr (kRows > 1)
    if (rows < kRows) return add_few_dots<kInputUnsigned, kRows - 1>(p, dots, rows, sums);
  is_four_bit(p.weight.dtype) ? add_dots<kInputUnsigned, true, kRows>(dots, Signs(p).flip, sums)
                              : add_dots<kInputUnsigned, false, kRows>(dots, Signs(p).flip, sums);
}

// --- Strips --------------------------------------------------------------------------------------

// The sums of a strip, all rows together; its rows; and terms that one pass over the sums adds.
constexpr std::int64_t kStripSums = 4096, kStripRows = 4, kStripTerms = 2 * kGroup;
constexpr int kInputTerms = 1024;  // of each row of the input, copied at a time

// Adds lines `term` and on, kStripTerms of them or `terms` where that is less, of transposed
// weights. Their terms of the input begin at inputs[row][at].
template <bool kInputUnsigned, int kRows>
void add_lines(const GemmOperand& weight, const Block& b, std::int64_t term, std::int64_t terms,
               std::uint8_t flip, const std::uint8_t (*inputs)[kInputTerms], std::int64_t at,
               std::int32_t* sums) {
  for (std::int64_t column = 0; column < b.columns; column += 64) {
    const std::int64_t columns = std::min<std::int64_t>(64, b.columns - column);
    __m512i sum[kRows][4];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        sum[r][j] = _mm512_loadu_si512(sums + r * b.pitch + column + j * 16);
    for (int group = 0; group < kStripTerms; group += kGroup) {
      __m512i words[4];
      words_of_lines(weight, b.column + column, columns, term + group, terms - group, flip, words);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m512i input = broadcast(inputs[r] + at + group);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j)
          sum[r][j] = multiply_add<kInputUnsigned>(sum[r][j], input, words[j]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        _mm512_storeu_si512(sums + r * b.pitch + column + j * 16, sum[r][j]);
  }
}

// The sums of a block of at most kStripRows rows. Columns beyond the block's last get sums, too, up
// to the end of a vector.
template <bool kInputUnsigned, int kRows = kStripRows>
void sums_by_strips(const Gemm& p, const Block& b, std::int32_t* sums) {
  if constexpr (kRows > 1)
    if (b.rows < kRows) return sums_by_strips<kInputUnsigned, kRows - 1>(p, b, sums);
  std::uint8_t inputs[kRows][kInputTerms];
  const std::uint8_t flip = Signs(p).flip;
  std::memset(sums, 0, sizeof(std::int32_t) * static_cast<std::size_t>(kRows * b.pitch));
  for (std::int64_t first = 0; first < p.k; first += kInputTerms) {
    const std::int64_t count = std::min<std::int64_t>(kInputTerms, p.k - first);
    std::memset(inputs, 0, sizeof inputs);
    for (int r = 0; r < kRows; ++r) {
      const std::uint8_t* from = terms_of(p.input, b.row + r, first, count, inputs[r]);
      if (from != inputs[r]) std::memcpy(inputs[r], from, static_cast<std::size_t>(count));
    }
    for (std::int64_t at = 0; at < count; at += kStripTerms)
      add_lines<kInputUnsigned, kRows>(p.weight, b, first + at, count - at, flip, inputs, at, sums);
  }
}

// --- Sums of the input's rows, for the correction ------------------------------------------------

// The sums of four rows of bytes. What lies `ahead` of them is prefetched.
template <bool kUnsigned>
inline __m128i sums_of_rows(const std::uint8_t* const* rows, std::int64_t count,
                            std::int64_t ahead) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sum[4];
  for (int r = 0; r < 4; ++r) sum[r] = _mm512_setzero_si512();
  for (std::int64_t i = 0; i < count; i += 64) {
    const __mmask64 mask = first_bytes(count - i);
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      __builtin_prefetch(rows[r] + i + ahead);
      sum[r] = multiply_add<kUnsigned>(sum[r], _mm512_maskz_loadu_epi8(mask, rows[r] + i), ones);
    }
  }
  return totals(sum[0], sum[1], sum[2], sum[3]);
}

// The sums of at most 64 rows of a transposed input.
template <bool kInputUnsigned>
void sum_lines(const GemmOperand& input, std::int64_t row, std::int64_t rows, std::int64_t terms,
               std::int32_t* sums) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sum[4];
  for (int j = 0; j < 4; ++j) sum[j] = _mm512_setzero_si512();
  for (std::int64_t term = 0; term < terms; term += kGroup) {
    __m512i words[4];
    words_of_lines(input, row, rows, term, terms - term, 0, words);
    for (int j = 0; j < 4; ++j) sum[j] = multiply_add<kInputUnsigned>(sum[j], words[j], ones);
  }
  for (int j = 0; j < 4; ++j) _mm512_storeu_si512(sums + j * 16, sum[j]);
}

// The sums of at most four rows of an input that lies in rows.
template <bool kInputUnsigned>
__m128i sum_rows(const GemmOperand& input, std::int64_t row, std::int64_t rows,
                 std::int64_t terms) {
  std::uint8_t room[4][kDotTerms];
  const std::int64_t most = lies_in_bytes(input) ? terms : kDotTerms;
  __m128i sum = _mm_setzero_si128();
  for (std::int64_t term = 0; term < terms; term += most) {
    const std::int64_t count = std::min(most, terms - term);
    const std::uint8_t* from[4];
    for (std::int64_t i = 0; i < 4; ++i)
      from[i] = i < rows ? terms_of(input, row + i, term, count, room[i]) : from[0];
    sum = _mm_add_epi32(sum, sums_of_rows<kInputUnsigned>(from, count, 4 * input.row_stride));
  }
  return sum;
}

// The sums of a block's rows of the input.
template <bool kInputUnsigned>
void sum_input(const Gemm& p, const Block& b, std::int32_t* sums) {
  if (p.input.transposed())
    for (std::int64_t row = 0; row < b.rows; row += 64)
      sum_lines<kInputUnsigned>(p.input, b.row + row, std::min<std::int64_t>(64, b.rows - row), p.k,
                                sums + row);
  else
    for (std::int64_t row = 0; row < b.rows; row += 4)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + row),
                       sum_rows<kInputUnsigned>(p.input, b.row + row,
                                                std::min<std::int64_t>(4, b.rows - row), p.k));
}

}  // namespace planq::host::PLANQ_LEVEL
