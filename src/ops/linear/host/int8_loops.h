// Blocks of a product for one instruction set: see host/int8.cpp. No include guard: see
// host/instruction_sets.h.
//
// Sums of a block come from one of three bodies. By dots: a row of the input with a row of the
// weights, both as they lie in memory, for few rows or few columns. By strips: a few rows with
// weights that are transposed, which are read line by line. By panels: columns of the weights side
// by side in a panel, a slice of k at a time, which many rows of the input walk.
//
// VNNI multiplies bytes, unsigned with signed: of two that are alike, the weight's top bit is
// turned over, which makes it 128 more or less, and the row's sum of the input puts that right. The
// same makes unsigned numbers of signed nibbles. AMX takes the same panels, where there are rows
// and terms that fill its registers. Other instruction sets multiply 16-bit numbers.

#include "ops/linear/host/number_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the lanes that an intrinsic leaves undefined for a mistake of the caller.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace planq::host::PLANQ_LEVEL {

using linear::Epilogue;
using linear::Gemm;
using linear::GemmOperand;

// --- Codes as bytes ------------------------------------------------------------------------------

// Codes from number `first` on that lie side by side, one a byte: where they are, or unpacked.
// `bare` leaves int4 without its sign, as numbers from 0 to 15.
inline const std::uint8_t* line_of(const GemmOperand& operand, std::int64_t first,
                                   std::int64_t count, std::uint8_t* room, bool bare = false) {
  if (!is_four_bit(operand.dtype)) return operand.data + first;
  const std::uint8_t* packed = operand.data + first / 2;
  const bool is_signed = operand.dtype == DType::Int4 && !bare;
  for (std::int64_t i = 0; i < count / 2; ++i) {
    const auto codes = math::neighbours_split<std::uint16_t>(packed[i], NibbleOrder::LowFirst);
    const std::uint16_t both = is_signed ? math::nibbles_extended(codes) : codes;
    std::memcpy(room + 2 * i, &both, sizeof both);
  }
  if (count % 2 == 1) {
    const std::uint8_t code = math::low_nibbles(packed[count / 2]);
    room[count - 1] = is_signed ? math::nibbles_extended(code) : code;
  }
  return room;
}

// Terms of a row, likewise; those of a transposed matrix are gathered.
inline const std::uint8_t* terms_of(const GemmOperand& operand, std::int64_t row,
                                    std::int64_t first, std::int64_t count, std::uint8_t* room) {
  if (!operand.transposed()) return line_of(operand, row * operand.row_stride + first, count, room);
  for (std::int64_t i = 0; i < count; ++i)
    room[i] = static_cast<std::uint8_t>(operand.code(row, first + i));
  return room;
}

// Where a row's terms lie, be they packed.
inline const std::uint8_t* row_at(const GemmOperand& operand, std::int64_t row, std::int64_t term) {
  const std::int64_t code = row * operand.row_stride + term;
  return operand.data + (is_four_bit(operand.dtype) ? code / 2 : code);
}

// What a panel holds, and how much of it a block fills.
struct Slice {
  std::int64_t term, terms;      // of k
  std::int64_t column, columns;  // of n
};

// Where a block's sums are: in a room of their own, or in the output.
struct Sums {
  std::int32_t* data;
  std::int64_t pitch;  // from a row to the next

  std::int32_t* of(std::int64_t row) const { return data + row * pitch; }
};

// Rows of the input that meet rows of the weights, which lie evenly. The end of a row stops the
// processor from fetching ahead: of the weights, what lies `ahead` of what is read is asked for.
struct Dots {
  const std::uint8_t* const* inputs = nullptr;
  const std::uint8_t* weights = nullptr;
  std::int64_t step = 0, ahead = 0;     // bytes; a step leads from a row of the weights to the next
  std::int64_t columns = 0, count = 0;  // rows of the weights, and terms
  std::int64_t pitch = 0;               // of the sums

  const std::uint8_t* weight(std::int64_t column) const { return weights + column * step; }
};

#if PLANQ_VNNI

// --- Sums of products of bytes -------------------------------------------------------------------

constexpr int kGroup = 4;  // terms that are added in one lane
constexpr int kVectors = 4, kColumns = 64, kTileRows = 6;
// Rows of the input that are packed at a time, and terms, where it is transposed and where not.
constexpr std::int64_t kTerms = 256, kPackedRows = 32;
constexpr std::int64_t kLongTerms = 512;  // of a panel beside no sums
constexpr std::int64_t kLineTerms = 128, kLineRows = 60;
constexpr std::int64_t kFew = 15;  // rows or columns that are not worth a panel, or fewer
constexpr std::int64_t kPackedCells = 64 * kLineTerms;
using Cell = std::uint8_t;

// How two kinds of bytes are multiplied: weights with their bits of `flip` turned over, which are
// `flip` more or less than they should be.
struct Signs {
  bool input_unsigned;
  std::uint8_t flip = 0;
  std::int32_t correction = 0;  // of a sum, times the row's sum of the input

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

inline __mmask64 first_bytes(std::int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

template <bool kInputUnsigned>
inline __m512i multiply_add(__m512i sum, __m512i input, __m512i weight) {
  return kInputUnsigned ? _mm512_dpbusd_epi32(sum, input, weight)
                        : _mm512_dpbusd_epi32(sum, weight, input);
}

// Sums of four vectors each.
inline __m128i totals(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  const __m512i all =
      _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m256i half =
      _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// Sums of four rows of bytes. What lies `ahead` of them is asked for.
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

// 16 bytes of each of four lines.
inline __m512i four_lines(const std::uint8_t* const (&lines)[4]) {
  __m512i v = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[0])));
  v = _mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[1])), 1);
  v = _mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[2])), 2);
  return _mm512_inserti32x4(v, _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[3])), 3);
}

// 16 lines of 16 words become 16 lines of their columns, `pitch` apart.
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

// Words of four terms of 64 columns, from four lines of columns.
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

// Words of four terms of at most 64 rows, from a transposed matrix. What is missing is 0, turned
// over like the rest.
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

// 16 columns of a panel of `width`, from rows of the weights, while those of the next 16 are asked
// for. A row's bytes are copied at once: rows that lie a power of two apart push one another out of
// the cache.
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

// Rows of the input as tiles read them: a word of four terms at row * row_step + group *
// group_step.
struct Rows {
  const Cell* data;
  std::int64_t row_step, group_step;
};

// At most kPackedRows or kLineRows rows, with zeros behind the last term.
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

#if PLANQ_SIMD_AMX
// Begins the sums of 16 rows and 32 columns in two registers.
template <int kRegister>
inline void begin_amx(const std::int32_t* start, const Sums& sums,
                      std::int32_t (&room)[kAmxRows][16]) {
  if (!start) {
    load_amx<kRegister>(sums.data, 4 * sums.pitch);
    load_amx<kRegister + 1>(sums.data + 16, 4 * sums.pitch);
    return;
  }
  for (int r = 0; r < kAmxRows; ++r) _mm512_store_si512(room[r], _mm512_set1_epi32(start[r]));
  load_amx<kRegister>(room, sizeof room[0]);
  load_amx<kRegister + 1>(room, sizeof room[0]);
}

// The products of 32 columns by AMX, of 32 rows or 16, and of terms in whole registers: 0 to 3 have
// sums, 4 and 5 rows of the input, 6 and 7 columns.
template <bool kInputUnsigned, int kHigh>
void add_amx(const Rows& rows, const Cell* panel, int width, std::int64_t terms,
             const std::int32_t* start, const Sums& sums) {
  alignas(64) std::int32_t room[kAmxRows][16];
  const Sums lower = {sums.of(kAmxRows), sums.pitch};
  begin_amx<0>(start, sums, room);
  if constexpr (kHigh == 2) begin_amx<2>(start ? start + kAmxRows : nullptr, lower, room);
  // Sums of the next rows are asked for on the way: they may be far away.
  const std::int64_t share = 2 * kAmxRows * kAmxTerms / terms + 1;
  const std::int32_t* next = sums.of(kHigh * kAmxRows);
  for (std::int64_t term = 0; term < terms; term += kAmxTerms) {
    for (std::int64_t i = 0; i < share; ++i, next += sums.pitch) {
      __builtin_prefetch(next, 1, 2);
      __builtin_prefetch(next + 16, 1, 2);
    }
    const Cell* weights = panel + term * width;
    const Cell* input = rows.data + term;
    load_amx<6>(weights, kGroup * width);
    load_amx<4>(input, rows.row_step);
    multiply_amx<kInputUnsigned, 0, 4, 6>();
    load_amx<7>(weights + 64, kGroup * width);
    multiply_amx<kInputUnsigned, 1, 4, 7>();
    if constexpr (kHigh == 2) {
      load_amx<5>(input + kAmxRows * rows.row_step, rows.row_step);
      multiply_amx<kInputUnsigned, 2, 5, 6>();
      multiply_amx<kInputUnsigned, 3, 5, 7>();
    }
  }
  store_amx<0>(sums.data, 4 * sums.pitch);
  store_amx<1>(sums.data + 16, 4 * sums.pitch);
  if constexpr (kHigh == 2) {
    store_amx<2>(lower.data, 4 * sums.pitch);
    store_amx<3>(lower.data + 16, 4 * sums.pitch);
  }
}

// The same of rows in sixteens with a panel of `width` columns.
template <bool kInputUnsigned>
void add_panel_amx(const Rows& rows, std::int64_t count, const Cell* panel, int width,
                   std::int64_t terms, const std::int32_t* start, const Sums& sums) {
  const AmxRegisters registers;
  for (std::int64_t i = 0; i < count; i += 2 * kAmxRows) {
    const auto add =
        i + 2 * kAmxRows <= count ? add_amx<kInputUnsigned, 2> : add_amx<kInputUnsigned, 1>;
    const Rows some = {rows.data + i * rows.row_step, rows.row_step, rows.group_step};
    for (int column = 0; column < width; column += 32)
      add(some, panel + column * kGroup, width, terms, start ? start + i : nullptr,
          {sums.of(i) + column, sums.pitch});
  }
}
#endif

// So many of the codes that lie in the next 64 bytes, at most all of them; the others are 0.
template <bool kWhole>
inline __m512i load_bytes(const std::uint8_t* from, std::int64_t left) {
  if constexpr (kWhole) return _mm512_loadu_si512(from);
  return _mm512_maskz_loadu_epi8(first_bytes(left), from);
}

// The same of 64 codes from 64 bytes or from 32.
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

// Adds 64 terms, or as many as are left, of columns from `column` on.
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

// Adds the products of rows of the input with rows of the weights, 4 or 1.
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

// Adds the products of up to four rows with columns.
template <bool kInputUnsigned, int kRows = 4>
void add_few_dots(const Gemm& p, const Dots& dots, std::int64_t rows, std::int32_t* sums) {
  if constexpr (kRows > 1)
    if (rows < kRows) return add_few_dots<kInputUnsigned, kRows - 1>(p, dots, rows, sums);
  is_four_bit(p.weight.dtype) ? add_dots<kInputUnsigned, true, kRows>(dots, Signs(p).flip, sums)
                              : add_dots<kInputUnsigned, false, kRows>(dots, Signs(p).flip, sums);
}

// A strip's sums, and how many terms of it are added in a pass over them.
constexpr std::int64_t kStripSums = 4096, kStripRows = 4, kStripTerms = 2 * kGroup;

// Adds eight lines of transposed weights times their terms of the input's rows.
template <bool kInputUnsigned, int kRows>
void add_lines(const GemmOperand& weight, const Block& b, std::int64_t term, std::int64_t terms,
               std::uint8_t flip, const std::uint8_t (*inputs)[1024], std::int64_t at,
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

template <bool kInputUnsigned, int kRows = kStripRows>
void sums_by_strips(const Gemm& p, const Block& b, std::int32_t* sums) {
  if constexpr (kRows > 1)
    if (b.rows < kRows) return sums_by_strips<kInputUnsigned, kRows - 1>(p, b, sums);
  std::uint8_t inputs[kRows][1024];
  const std::uint8_t flip = Signs(p).flip;
  std::memset(sums, 0, sizeof(std::int32_t) * static_cast<std::size_t>(kRows * b.pitch));
  for (std::int64_t first = 0; first < p.k; first += 1024) {
    const std::int64_t count = std::min<std::int64_t>(1024, p.k - first);
    std::memset(inputs, 0, sizeof inputs);
    for (int r = 0; r < kRows; ++r) {
      const std::uint8_t* from = terms_of(p.input, b.row + r, first, count, inputs[r]);
      if (from != inputs[r]) std::memcpy(inputs[r], from, static_cast<std::size_t>(count));
    }
    for (std::int64_t at = 0; at < count; at += kStripTerms)
      add_lines<kInputUnsigned, kRows>(p.weight, b, first + at, count - at, flip, inputs, at, sums);
  }
}

#else

// --- Sums of products of 16-bit numbers ----------------------------------------------------------

constexpr int kGroup = 2;  // terms that are added in one lane
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
constexpr int kLanes = sizeof(Vector) / 4, kColumns = kVectors * kLanes;
constexpr int kTileRows = 6;
constexpr std::int64_t kTerms = 128, kPackedRows = kTileRows, kLongTerms = kTerms;
constexpr std::int64_t kLineTerms = kTerms, kLineRows = kPackedRows;
constexpr std::int64_t kPackedCells = kPackedRows * kTerms;
constexpr std::int64_t kStripSums = 0, kStripRows = 0;
constexpr std::int64_t kFew = 32;  // rows or columns that are not worth a panel, or fewer
using Cell = std::int16_t;

// Numbers of 16 bits need no correction.
struct Signs {
  bool input_unsigned;
  std::uint8_t flip = 0;
  std::int32_t correction = 0;

  explicit Signs(const Gemm& p) : input_unsigned(p.input.dtype == DType::UInt8) {}
};
// Bytes as numbers, `step` cells apart.
inline void widen_codes(const std::uint8_t* codes, std::int64_t count, bool is_unsigned,
                        std::int64_t step, Cell* to) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i * step] = static_cast<Cell>(is_unsigned ? codes[i] : static_cast<std::int8_t>(codes[i]));
}

// A column's terms, which lie in pairs; those of the next column begin behind the first.
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

// The terms of a column lie in pairs, and pairs of one place side by side.
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

// Rows of the input as tiles read them: a word of two terms at row * row_step + group * group_step.
struct Rows {
  const Cell* data;
  std::int64_t row_step, group_step;
};

// At most six rows, with zeros behind the last term.
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

template <bool kUnsigned>
inline std::uint32_t number_of(std::uint8_t code) {
  return static_cast<std::uint32_t>(kUnsigned ? code : static_cast<std::int8_t>(code));
}

inline std::uint32_t total(Vector sum) {
  std::uint32_t words[kLanes], all = 0;
  store(words, sum);
  for (const std::uint32_t word : words) all += word;
  return all;
}

// Adds the products of rows of the input, 2 or 1, with rows of the weights, 4 or 1.
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

template <bool kInputUnsigned, bool kWeightUnsigned, int kRows>
void add_dots(const Dots& given, std::int32_t* sums) {
  const Dots dots = given;
  std::int64_t column = 0;
  for (; column + 4 <= dots.columns; column += 4)
    add_columns<kInputUnsigned, kWeightUnsigned, kRows, 4>(dots, column, sums);
  for (; column < dots.columns; ++column)
    add_columns<kInputUnsigned, kWeightUnsigned, kRows, 1>(dots, column, sums);
}

// Adds the products of up to four rows with columns.
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

#endif

// --- Bodies --------------------------------------------------------------------------------------

// Calls add_tile for a number of rows that is known at run time.
template <bool kInputUnsigned, int kRows = kTileRows>
void add_rows(std::int64_t count, const Rows& rows, const Cell* panel, std::int64_t groups,
              const std::int32_t* start, const Sums& sums) {
  if constexpr (kRows > 1)
    if (count < kRows)
      return add_rows<kInputUnsigned, kRows - 1>(count, rows, panel, groups, start, sums);
  add_tile<kInputUnsigned, kRows>(rows, panel, groups, start, sums);
}

// Whether tiles read the input where it lies: bytes, in whole groups.
inline bool is_direct(const Gemm& p) {
  return sizeof(Cell) == 1 && !is_four_bit(p.input.dtype) && !p.input.transposed() &&
         p.k % kGroup == 0;
}

// All rows of a block with a panel. `start` is where their sums begin; null: they have begun.
template <bool kInputUnsigned>
void add_panel(const Rows& rows, std::int64_t count, const Cell* panel, std::int64_t terms,
               const std::int32_t* start, const Sums& sums) {
  const std::int64_t groups = (terms + kGroup - 1) / kGroup;
  for (std::int64_t i = 0; i < count; i += kTileRows) {
    const Rows tile = {rows.data + i * rows.row_step, rows.row_step, rows.group_step};
    add_rows<kInputUnsigned>(std::min<std::int64_t>(kTileRows, count - i), tile, panel, groups,
                             start ? start + i : nullptr, {sums.of(i), sums.pitch});
  }
}

#if PLANQ_VNNI && PLANQ_SIMD_AMX
// The same, with AMX for as many rows and terms as fill its registers.
template <bool kInputUnsigned>
void add_panel_by_amx(const Rows& rows, std::int64_t count, const Cell* panel, std::int64_t terms,
                      const std::int32_t* start, const Sums& sums) {
  const std::int64_t whole_rows = count / kAmxRows * kAmxRows;
  const std::int64_t whole_terms = terms / kAmxTerms * kAmxTerms;
  const auto from = [&rows](std::int64_t row, std::int64_t term) {
    return Rows{rows.data + row * rows.row_step + term, rows.row_step, rows.group_step};
  };
  if (whole_terms > 0) {
    add_panel_amx<kInputUnsigned>(rows, whole_rows, panel, kColumns, whole_terms, start, sums);
    if (whole_terms < terms)
      add_panel<kInputUnsigned>(from(0, whole_terms), whole_rows, panel + whole_terms * kColumns,
                                terms - whole_terms, nullptr, sums);
  } else {
    add_panel<kInputUnsigned>(rows, whole_rows, panel, terms, start, sums);
  }
  add_panel<kInputUnsigned>(from(whole_rows, 0), count - whole_rows, panel, terms,
                            start ? start + whole_rows : nullptr,
                            {sums.of(whole_rows), sums.pitch});
}
#endif

// All rows of a block with a panel. AMX needs a row's terms side by side.
template <bool kInputUnsigned>
void add_slice([[maybe_unused]] const Block& b, const Rows& rows, std::int64_t count,
               const Cell* panel, std::int64_t terms, const std::int32_t* start, const Sums& sums) {
#if PLANQ_VNNI && PLANQ_SIMD_AMX
  if (b.amx && rows.group_step == kGroup)
    return add_panel_by_amx<kInputUnsigned>(rows, count, panel, terms, start, sums);
#endif
  add_panel<kInputUnsigned>(rows, count, panel, terms, start, sums);
}

// For tiles that read the input where it lies, in slices of so many terms.
template <bool kInputUnsigned, std::int64_t kSliceTerms>
[[gnu::noinline]] void sums_by_panels(const Gemm& p, const Block& b, const std::int32_t* start,
                                      const Sums& sums) {
  alignas(64) Cell panel[kSliceTerms * kColumns];
  const Signs signs(p);
  for (std::int64_t term = 0; term < p.k; term += kSliceTerms) {
    const Slice s = {term, std::min(kSliceTerms, p.k - term), b.column, b.columns};
    pack_panel(p.weight, s, signs, panel);
    const Rows rows = {reinterpret_cast<const Cell*>(row_at(p.input, b.row, term)),
                       p.input.row_stride, kGroup};
    add_slice<kInputUnsigned>(b, rows, b.rows, panel, s.terms, term == 0 ? start : nullptr, sums);
  }
}

#if PLANQ_VNNI && PLANQ_SIMD_AMX
// Whether rows and terms fill registers of AMX, and weights lie in rows.
inline bool fills_amx(const Gemm& p, const Block& b) {
  return b.amx && !p.weight.transposed() && p.k % kAmxTerms == 0 && b.rows % kAmxRows == 0;
}

// For sums in the output, which is far away for AMX: panels of half the columns have twice the
// terms, and come back to sums half as often.
template <bool kInputUnsigned>
[[gnu::noinline]] void sums_by_narrow_panels(const Gemm& p, const Block& b,
                                             const std::int32_t* start, const Sums& sums) {
  constexpr int kWidth = kColumns / 2;
  constexpr std::int64_t kSliceTerms = 2 * kLongTerms;
  alignas(64) Cell panel[kSliceTerms * kWidth];
  const Signs signs(p);
  for (int column = 0; column < kColumns; column += kWidth)
    for (std::int64_t term = 0; term < p.k; term += kSliceTerms) {
      const Slice s = {term, std::min(kSliceTerms, p.k - term), b.column + column, kWidth};
      for (int from = 0; from < kWidth; from += 16)
        pack_rows_of_weight(p.weight, s, from, kWidth, signs.flip, panel);
      const Rows rows = {row_at(p.input, b.row, term), p.input.row_stride, kGroup};
      add_panel_amx<kInputUnsigned>(rows, b.rows, panel, kWidth, s.terms,
                                    term == 0 ? start : nullptr, {sums.data + column, sums.pitch});
    }
}
#endif

// For tiles whose input has to be packed as well.
template <bool kInputUnsigned>
[[gnu::noinline]] void sums_by_packed_panels(const Gemm& p, const Block& b,
                                             const std::int32_t* start, const Sums& sums) {
  alignas(64) Cell panel[kTerms * kColumns];
  alignas(64) Cell packed[kPackedCells];
  const Signs signs(p);
  const bool lines = p.input.transposed();
  const std::int64_t terms = lines ? kLineTerms : kTerms, most = lines ? kLineRows : kPackedRows;
  for (std::int64_t term = 0; term < p.k; term += terms) {
    const Slice s = {term, std::min(terms, p.k - term), b.column, b.columns};
    pack_panel(p.weight, s, signs, panel);
    for (std::int64_t row = 0; row < b.rows; row += most) {
      const std::int64_t count = std::min(most, b.rows - row);
      add_slice<kInputUnsigned>(b, pack_rows(p.input, b.row + row, count, s, packed), count, panel,
                                s.terms, term == 0 ? start + row : nullptr,
                                {sums.of(row), sums.pitch});
    }
  }
}

// Terms of rows where they lie or, of those that have to be unpacked or gathered, as many as there
// is room for.
constexpr std::int64_t kDotTerms = 1024, kDots = 4;
inline bool lies_in_bytes(const GemmOperand& operand) {
  return !is_four_bit(operand.dtype) && !operand.transposed();
}
// Dots with nibbles unpack them on the way.
inline bool lies_for_dots(const GemmOperand& weight) {
  return PLANQ_VNNI == 1 || lies_in_bytes(weight);
}

// Rows of a block's weights where they lie or, unpacked, four at a time.
inline Dots dots_of(const Gemm& p, std::int64_t column, std::int64_t columns, std::int64_t term,
                    std::int64_t count, std::uint8_t (&room)[kDots][kDotTerms]) {
  Dots dots = {.columns = columns, .count = count};
  if (lies_for_dots(p.weight)) {
    dots.weights = row_at(p.weight, column, term);
    dots.step = p.weight.row_stride / (is_four_bit(p.weight.dtype) ? 2 : 1);
    dots.ahead = 4 * dots.step;
    return dots;
  }
  dots.weights = room[0];
  dots.step = kDotTerms;
  for (std::int64_t i = 0; i < columns; ++i) terms_of(p.weight, column + i, term, count, room[i]);
  return dots;
}

template <bool kInputUnsigned>
void sums_by_dots(const Gemm& p, const Block& b, std::int32_t* sums) {
  std::uint8_t input_room[kDots][kDotTerms], weight_room[kDots][kDotTerms];
  const std::uint8_t* inputs[kDots];
  std::memset(sums, 0, sizeof(std::int32_t) * static_cast<std::size_t>(b.rows * b.pitch));
  const bool lies = lies_for_dots(p.weight);
  const std::int64_t most = lies_in_bytes(p.input) && lies ? p.k : kDotTerms;
  const std::int64_t step = lies ? b.columns : kDots;
  for (std::int64_t term = 0; term < p.k; term += most) {
    const std::int64_t count = std::min(most, p.k - term);
    for (std::int64_t row = 0; row < b.rows; row += kDots) {
      const std::int64_t rows = std::min(kDots, b.rows - row);
      for (std::int64_t i = 0; i < rows; ++i)
        inputs[i] = terms_of(p.input, b.row + row + i, term, count, input_room[i]);
      for (std::int64_t column = 0; column < b.columns; column += step) {
        Dots dots = dots_of(p, b.column + column, std::min(step, b.columns - column), term, count,
                            weight_room);
        dots.inputs = inputs;
        dots.pitch = b.pitch;
        add_few_dots<kInputUnsigned>(p, dots, rows, sums + row * b.pitch + column);
      }
    }
  }
}

#if PLANQ_VNNI
// The sums of rows that lie in lines, at most 64.
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

// The same of at most four rows that lie one after another.
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

#else
template <bool>
void sum_input(const Gemm&, const Block&, std::int32_t*) {}
#endif

// Where the sums of a block's rows begin: at what takes back the turning over of the weights' bits.
template <bool kInputUnsigned>
const std::int32_t* start_of(const Gemm& p, const Block& b, RowSums& known) {
  std::int64_t place = b.row - known.row;
  if (place >= 0 && place + b.rows <= known.rows) return known.start + place;
  if (place != known.rows || place + b.rows > kMostRows) {
    known.row = b.row;
    place = 0;
  }
  known.rows = place + b.rows;
  std::int32_t* start = known.start + place;
  const std::int32_t correction = Signs(p).correction;
  if (correction == 0) {
    std::fill_n(start, b.rows, 0);
    return start;
  }
  sum_input<kInputUnsigned>(p, b, start);
  for (std::int64_t row = 0; row < b.rows; ++row) start[row] *= correction;
  return start;
}

// Adds them to sums that began at 0. Those with bits turned over may leave int32, and come back
// modulo 2^32.
inline void add_starts(const Block& b, const std::int32_t* start, const Sums& sums) {
  for (std::int64_t row = 0; row < b.rows; ++row) {
    const auto excess = static_cast<std::uint32_t>(start[row]);
    std::int32_t* to = sums.of(row);
    for (std::int64_t column = 0; column < b.columns; ++column)
      to[column] = static_cast<std::int32_t>(static_cast<std::uint32_t>(to[column]) + excess);
  }
}

inline bool takes_strips(const Gemm& p) { return p.m <= kStripRows && p.weight.transposed(); }

template <bool kInputUnsigned>
void compute_sums(const Gemm& p, const Block& b, RowSums& known, std::int32_t* sums) {
  if (p.k == 0) {
    std::memset(sums, 0, sizeof(std::int32_t) * static_cast<std::size_t>(b.rows * b.pitch));
    return;
  }
  const std::int32_t* start = start_of<kInputUnsigned>(p, b, known);
  // Columns that fill a panel are worth it.
  const bool few = b.rows <= kFew || b.columns <= std::min<std::int64_t>(kFew, kColumns - 1);
  if (!takes_strips(p) && (!few || p.weight.transposed()))
    return is_direct(p) ? sums_by_panels<kInputUnsigned, kTerms>(p, b, start, {sums, b.pitch})
                        : sums_by_packed_panels<kInputUnsigned>(p, b, start, {sums, b.pitch});
#if PLANQ_VNNI
  if (takes_strips(p))
    sums_by_strips<kInputUnsigned>(p, b, sums);
  else
#endif
    sums_by_dots<kInputUnsigned>(p, b, sums);
  if (Signs(p).correction != 0) add_starts(b, start, {sums, b.pitch});
}

// --- Outputs -------------------------------------------------------------------------------------

// The terms of the columns of a block.
template <class C>
struct Columns {
  C scale[kColumns], bias[kColumns];
  std::uint32_t zero_point[kColumns], sum[kColumns];

  Columns(const Epilogue& e, std::int64_t first, std::int64_t count) {
    if (e.weight_step == 0)
      std::fill_n(scale, count, math::load_scale<C>(e.weight_scale, 0, e.scale_dtype));
    else
      load_numbers<C>(e.weight_scale, e.scale_dtype, first, count, scale);
    if (e.bias)
      load_numbers<C>(e.bias, e.bias_dtype, first, count, bias);
    else
      std::fill_n(bias, count, C{0});
    if (!e.weight_zero_point && !e.weight_sum) return;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto term = linear::column_term<C>(e, first + i);
      zero_point[i] = term.zero_point;
      sum[i] = term.sum;
    }
  }
};

template <Convention kConvention, class C>
void finish_row(const Epilogue& e, const linear::RowTerm<C>& row, const Columns<C>& columns,
                std::int64_t count, std::int32_t* sums, const C* residual, C* values) {
  const bool has_bias = e.bias != nullptr;
  if (e.input_zero_point || e.weight_zero_point)
    for (std::int64_t i = 0; i < count; ++i)
      sums[i] = linear::without_zero_points<C>(sums[i], row,
                                               {C{0}, C{0}, columns.zero_point[i], columns.sum[i]});
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = linear::scaled<kConvention, C>(sums[i], row,
                                               {columns.scale[i], columns.bias[i], 0, 0}, has_bias);
  if (e.residual)
    for (std::int64_t i = 0; i < count; ++i) values[i] += residual[i];
}

// So many rows before it is written, a row of outputs is asked for.
constexpr std::int64_t kAhead = 8;

template <class T, Convention kConvention>
void finish_block(const Gemm& p, const Block& b, std::int32_t* sums) {
  using C = math::Compute<T>;
  C values[kColumns], residual[kColumns];
  const Epilogue& e = p.epilogue;
  const Columns<C> columns(e, b.column, b.columns);
  for (std::int64_t i = 0; i < b.rows; ++i) {
    const std::int64_t row = b.row + i;
    if (e.residual)
      load_numbers<C>(e.residual, e.residual_dtype, row * e.residual_row + b.column, b.columns,
                      residual);
    finish_row<kConvention, C>(e, linear::row_term<C>(e, row), columns, b.columns,
                               sums + i * b.pitch, residual, values);
    T* const to = reinterpret_cast<T*>(p.output) + row * p.output_row + b.column;
    for (std::int64_t at = 0; at < b.columns; at += 64 / sizeof(T))
      __builtin_prefetch(to + kAhead * p.output_row + at, 1);
    narrow<T>(values, b.columns, to);
  }
}

template <class T>
void finish_by_convention(const Gemm& p, const Block& b, std::int32_t* sums) {
  switch (p.epilogue.convention) {
    case Convention::BitsAndBytes:
      return finish_block<T, Convention::BitsAndBytes>(p, b, sums);
    case Convention::Baracuda:
      return finish_block<T, Convention::Baracuda>(p, b, sums);
    default:
      return finish_block<T, Convention::Planq>(p, b, sums);
  }
}

template <class T>
void store_integers(const Gemm& p, const Block& b, const std::int32_t* sums) {
  for (std::int64_t row = 0; row < b.rows; ++row) {
    T* to = reinterpret_cast<T*>(p.output) + (b.row + row) * p.output_row + b.column;
    for (std::int64_t i = 0; i < b.columns; ++i)
      to[i] = linear::integer_output<T>(sums[row * b.pitch + i]);
  }
}

inline void store_block(const Gemm& p, const Block& b, std::int32_t* sums) {
  switch (p.output_dtype) {
    case DType::Int32:
      return store_integers<std::int32_t>(p, b, sums);
    case DType::Int8:
      return store_integers<std::int8_t>(p, b, sums);
    case DType::Float16:
      return finish_by_convention<math::Half>(p, b, sums);
    case DType::BFloat16:
      return finish_by_convention<math::Bfloat16>(p, b, sums);
    case DType::Float32:
      return finish_by_convention<float>(p, b, sums);
    default:
      return finish_by_convention<double>(p, b, sums);
  }
}

// --- Blocks --------------------------------------------------------------------------------------

// Whether sums of int32 are added where they end up. Then a block may have any number of rows, and
// a panel is packed once for all of them.
inline bool adds_in_place(const Gemm& p) {
  return p.output_dtype == DType::Int32 && is_direct(p) && p.k > 0 && p.m > kFew;
}

// Columns of a block, for threads to share.
inline std::int64_t columns_of(const Gemm& p, int threads) {
  if (!takes_strips(p)) return kColumns;
  const std::int64_t share = (p.n + threads - 1) / threads, most = kStripSums / p.m;
  return std::max<std::int64_t>(kColumns, std::min(share, most) / kColumns * kColumns);
}

// Rows of a block: as many as it can have, where threads have blocks enough to share.
inline std::int64_t rows_of(const Gemm& p, int threads, bool amx) {
  std::int64_t most = is_direct(p) ? kDirectRows : kBlockRows;
  if (adds_in_place(p)) {
    const std::int64_t across = (p.n + kColumns - 1) / kColumns * p.batch.size();
    const std::int64_t down = threads > 1 ? (kShares * threads + across - 1) / across : 1;
    const std::int64_t near =
        std::clamp(kNearRows / p.k / kAmxRows * kAmxRows, kDirectRows, kMostRows);
    most = std::clamp((p.m + down - 1) / down, kDirectRows, near);
  }
  const std::int64_t down = (p.m + most - 1) / most, rows = (p.m + down - 1) / down;
  const std::int64_t tile = amx ? kAmxRows : kTileRows;
  return std::min(most, (rows + tile - 1) / tile * tile);
}

// Rows whose sums have room on the stack.
template <bool kInputUnsigned, std::int64_t kRoomRows>
[[gnu::noinline]] void compute_in_room(const Gemm& p, Block b, RowSums& known) {
  alignas(64) std::int32_t sums[kRoomRows * kColumns];
  b.pitch = (b.columns + kColumns - 1) / kColumns * kColumns;
  compute_sums<kInputUnsigned>(p, b, known, sums);
  const std::int64_t end = b.column + b.columns;
  for (std::int32_t* from = sums; b.column < end; b.column += kColumns, from += kColumns) {
    b.columns = std::min<std::int64_t>(kColumns, end - b.column);
    store_block(p, b, from);
  }
}

template <bool kInputUnsigned>
void compute_rows(const Gemm& p, const Block& b, RowSums& known) {
  if (adds_in_place(p) && b.columns == kColumns && b.rows > kFew) {
    const std::int32_t* start = start_of<kInputUnsigned>(p, b, known);
    const Sums sums = {reinterpret_cast<std::int32_t*>(p.output) + b.row * p.output_row + b.column,
                       p.output_row};
#if PLANQ_VNNI && PLANQ_SIMD_AMX
    if (fills_amx(p, b)) return sums_by_narrow_panels<kInputUnsigned>(p, b, start, sums);
#endif
    return sums_by_panels<kInputUnsigned, kLongTerms>(p, b, start, sums);
  }
  const bool direct = is_direct(p);
  const std::int64_t most = direct ? kDirectRows : kBlockRows;
  for (std::int64_t row = 0; row < b.rows; row += most) {
    Block part = b;
    part.row += row;
    part.rows = std::min(most, b.rows - row);
    direct ? compute_in_room<kInputUnsigned, kDirectRows>(p, part, known)
           : compute_in_room<kInputUnsigned, kBlockRows>(p, part, known);
  }
}

inline void compute_block(const Gemm& p, Block b, RowSums& known) {
  p.input.dtype == DType::UInt8 ? compute_rows<true>(p, b, known)
                                : compute_rows<false>(p, b, known);
}

}  // namespace planq::host::PLANQ_LEVEL

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
