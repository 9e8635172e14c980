// Dequantizes weights that are codes to float32, for one instruction set: see weight_only/codes.h.
// No include guard: float_loops.h includes this for each instruction set, after number_loops.h,
// which includes host/convert.h.

#include "ops/codebook/pair_loops.h"

namespace planq::host::PLANQ_LEVEL {

using linear::WeightCodes;

// Rounds numbers, at most a slice of k, to a type; they stay float32.
template <class T>
void round_numbers(float* numbers, std::int64_t count) {
  T rounded[math::kTensorCoreSlice];
  narrow<T>(numbers, count, rounded);
  widen<T>(rounded, count, numbers);
}
inline void round_numbers(DType dtype, float* numbers, std::int64_t count) {
  switch (dtype) {
    case DType::Float16:
      return round_numbers<math::Half>(numbers, count);
    case DType::BFloat16:
      return round_numbers<math::Bfloat16>(numbers, count);
    default:
      return round_numbers<float>(numbers, count);
  }
}

// The scale of a segment of a row, 1 where there are none, and its zero point.
struct CodeStatistic {
  float scale = 1;
  std::int32_t zero_point = 0;
};
inline CodeStatistic statistic_of(const WeightCodes& codes, std::int64_t row,
                                  std::int64_t segment) {
  CodeStatistic own;
  if (codes.scales.exist()) own.scale = codes.scales.at(linear::scale_index(codes, row, segment));
  if (!codes.zero_point) return own;
  own.zero_point = codes.stored_zero_point(row, segment);
  if (!codes.scales.exist())
    own.zero_point = linear::counted_zero_point(codes.dtype, own.zero_point);
  return own;
}

// Dequantizes codes of 8 bits. Zero points of numbers that are not scaled are small.
template <class Integer>
void scale_integers(const WeightCodes& codes, const Integer* integers, const CodeStatistic& own,
                    std::int64_t count, float* to) {
  if (codes.scales.exist())
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = math::dequantized<float>(integers[i], own.scale, own.zero_point);
  else
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<float>(integers[i] - own.zero_point);
}
inline void scale_bytes(const WeightCodes& codes, const std::uint8_t* bytes,
                        const CodeStatistic& own, std::int64_t count, float* to) {
  if (codes.dtype == DType::Int8)
    return scale_integers(codes, reinterpret_cast<const std::int8_t*>(bytes), own, count, to);
  if (codes.dtype == DType::UInt8) return scale_integers(codes, bytes, own, count, to);
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = own.scale * math::float8_value<float>(bytes[i], codes.dtype);
}

// The number that each 4-bit code of a segment stands for.
inline void load_values(const WeightCodes& codes, std::int64_t row, std::int64_t segment,
                        float (&values)[16]) {
  const CodeStatistic own = statistic_of(codes, row, segment);
  for (int i = 0; i < 16; ++i)
    values[i] = own.scale * linear::number_of(codes, codes.codebook, static_cast<std::uint8_t>(i),
                                              own.zero_point);
  round_numbers(codes.values, values, 16);
}

// Looks up `count` 4-bit codes, from any code on. Where rows have a negative stride, `first` may be
// negative.
inline void look_up_nibbles(const WeightCodes& codes, std::int64_t first, std::int64_t count,
                            const float (&values)[16], float* to) {
  const std::int64_t head = count > 0 ? first & 1 : 0, pairs = (count - head) / 2;
  const std::uint8_t* const bytes = codes.data + (first >> 1);
  const auto one = [&](std::int64_t i) {
    to[i] = values[math::load_integer(bytes, (first & 1) + i, DType::UInt4, codes.nibble_order)];
  };
  if (head == 1) one(0);
  look_up_pairs(bytes + head, pairs, values, codes.nibble_order, to + head);
  if (head + 2 * pairs < count) one(count - 1);
}

// Layouts in tiles keep 64 terms of a row together. lay_out writes such a tile's row in the
// row-major layout: codes in order, the first of two 4-bit codes in the low nibble.
constexpr int kTileTerms = FragmentOrder::kTile;
static_assert(kTileTerms == mixed_dtype::kChunk);
// The most tiles that a slice of k has terms in.
constexpr int kLineTiles = math::kTensorCoreSlice / kTileTerms + 1;

inline std::uint32_t load_word(const std::uint8_t* from) {
  std::uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// WeightLayout::Packed: a row's codes are the low or the high nibbles of four threads' words.
inline void lay_out_fragments(const WeightCodes& codes, std::int64_t row, std::int64_t tile,
                              std::uint8_t* to) {
  const int first = FragmentOrder::nibble(static_cast<int>(row % kTileTerms), 0);
  const std::uint8_t* const threads = codes.data + row / kTileTerms * codes.row_stride +
                                      tile * FragmentOrder::kTileBytes + first / 2;
  const std::uint32_t flips =
      static_cast<std::uint32_t>(FragmentOrder::flipped(codes.dtype)) * 0x01010101u;
  for (int thread = 0; thread < 4; ++thread)
    for (int step = 0; step < 4; ++step) {
      const std::uint32_t word = load_word(threads + 16 * thread + 4 * step);
      const std::uint32_t four = (word >> first % 2 * 4 & 0x0F0F0F0Fu) ^ flips;
      const std::uint32_t pairs = four | four >> 12;
      to[8 * step + thread] = static_cast<std::uint8_t>(pairs);
      to[8 * step + 4 + thread] = static_cast<std::uint8_t>(pairs >> 8);
    }
}

// WeightLayout::Reordered.
template <class Layout>
void lay_out_span(const WeightCodes& codes, std::int64_t row, std::int64_t tile, std::uint8_t* to) {
  const std::uint8_t* const span = linear::reordered_span<Layout>(codes, row, tile);
  for (int term = 0; term < kTileTerms; term += Layout::kPerByte) {
    const std::uint32_t word = load_word(span + 4 * Layout::word(term)) ^ Layout::kSigns;
    const auto code = [&](int i) { return word >> Layout::kBits * Layout::lane(term + i); };
    to[term / Layout::kPerByte] =
        static_cast<std::uint8_t>(Layout::kPerByte == 1 ? code(0) : (code(0) & 15) | code(1) << 4);
  }
}

inline void lay_out(const WeightCodes& codes, std::int64_t row, std::int64_t tile,
                    std::uint8_t* to) {
  if (codes.layout == WeightLayout::Packed) return lay_out_fragments(codes, row, tile, to);
  if (codes.dtype == DType::Int8)
    return lay_out_span<mixed_dtype::Layout<DType::Int8>>(codes, row, tile, to);
  lay_out_span<mixed_dtype::Layout<DType::Int4>>(codes, row, tile, to);
}

// The tiles that hold some terms of a row, at most a slice, as row-major codes in `line`.
inline WeightCodes line_of(const WeightCodes& codes, std::int64_t row, std::int64_t term,
                           std::int64_t terms, std::uint8_t (&line)[kLineTiles * kTileTerms]) {
  const std::int64_t first = term / kTileTerms, last = (term + terms - 1) / kTileTerms;
  const int bytes = kTileTerms / (is_four_bit(codes.dtype) ? 2 : 1);
  for (std::int64_t tile = first; tile <= last; ++tile)
    lay_out(codes, row, tile, line + (tile - first) * bytes);
  WeightCodes made = codes;
  made.data = line;
  made.nibble_order = NibbleOrder::LowFirst;
  return made;
}

// Dequantizes some terms of a row, whose codes are those of `line` from number `code` on.
inline void decode_codes(const WeightCodes& line, std::int64_t code, std::int64_t row,
                         std::int64_t term, std::int64_t terms, float* to) {
  // The first term's place among the terms that segments divide: the whole weight's, or a row's.
  const std::int64_t begin = line.has_blocks ? row * line.terms + term : term;
  for (std::int64_t done = 0; done < terms;) {
    const std::int64_t segment = line.segment_size ? (begin + done) / line.segment_size : 0;
    std::int64_t count = terms - done;
    if (line.segment_size)
      count = std::min(count, (segment + 1) * line.segment_size - begin - done);
    if (is_four_bit(line.dtype)) {
      alignas(64) float values[16];
      load_values(line, row, segment, values);
      look_up_nibbles(line, code + done, count, values, to + done);
    } else {
      scale_bytes(line, line.data + code + done, statistic_of(line, row, segment), count,
                  to + done);
      round_numbers(line.values, to + done, count);
    }
    done += count;
  }
}

// Dequantizes some terms of a row, at most a slice, of any layout.
inline void decode_line(const WeightCodes& codes, std::int64_t row, std::int64_t term,
                        std::int64_t terms, float* to) {
  if (codes.layout == WeightLayout::RowMajor)
    return decode_codes(codes, row * codes.row_stride + term, row, term, terms, to);
  std::uint8_t line[kLineTiles * kTileTerms];
  decode_codes(line_of(codes, row, term, terms, line), term % kTileTerms, row, term, terms, to);
}

}  // namespace planq::host::PLANQ_LEVEL
