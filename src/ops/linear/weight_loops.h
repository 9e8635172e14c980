// Weights out of their codes, in float32, for one instruction set: see weight_codes.h. The loops
// that compute include host/convert.h before. No include guard: see host/instruction_sets.h.

#include "ops/codebook/pair_loops.h"

namespace planq::host::PLANQ_LEVEL {

using linear::WeightCodes;

// At most a slice of numbers, rounded to a type, and back in float32.
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

// Integers of a group as numbers.
template <class Integer>
void scale_integers(const WeightCodes& codes, std::int64_t row, std::int64_t group,
                    const Integer* integers, std::int64_t count, float* to) {
  if (!codes.scale) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(integers[i]);
    return;
  }
  const float scale = codes.scale[row * codes.scale_row + group];
  const std::int32_t zero_point =
      codes.zero_point ? codes.zero_point[row * codes.zero_point_row + group] : 0;
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = math::dequantized<float>(integers[i], scale, zero_point);
}

// What each 4-bit code of a segment stands for.
inline void load_values(const WeightCodes& codes, std::int64_t row, std::int64_t segment,
                        float (&values)[16]) {
  if (codes.has_blocks()) {
    const float absmax = codes.statistics.at<float>(segment);
    for (int i = 0; i < 16; ++i) values[i] = codes.codebook[i] * absmax;
  } else {
    std::int32_t integers[16];
    for (int i = 0; i < 16; ++i)
      integers[i] = linear::integer_of(codes.dtype, static_cast<std::uint8_t>(i));
    scale_integers(codes, row, segment, integers, 16, values);
  }
  round_numbers(codes.values, values, 16);
}

// Values of 4-bit codes from any of them on. Rows may lie backwards, and codes in front of `data`.
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

template <DType kDType>
void gather_reordered(const WeightCodes& codes, std::int64_t row, std::int64_t term,
                      std::int64_t terms, std::uint8_t* to) {
  using Layout = mixed_dtype::Layout<kDType>;
  constexpr int kChunk = mixed_dtype::kChunk;
  const std::uint8_t* span = nullptr;
  for (std::int64_t i = 0; i < terms; ++i) {
    const int of_chunk = static_cast<int>((term + i) % kChunk);
    if (i == 0 || of_chunk == 0)
      span = linear::reordered_span<Layout>(codes, row, (term + i) / kChunk);
    to[i] = linear::code_of_span<Layout>(span, of_chunk);
  }
}

// Codes of a layout in tiles, a byte each.
inline void gather_codes(const WeightCodes& codes, std::int64_t row, std::int64_t term,
                         std::int64_t terms, std::uint8_t* to) {
  if (codes.layout == WeightLayout::Packed) {
    for (std::int64_t i = 0; i < terms; ++i) to[i] = linear::packed_code(codes, row, term + i);
    return;
  }
  if (codes.dtype == DType::Int8) return gather_reordered<DType::Int8>(codes, row, term, terms, to);
  gather_reordered<DType::Int4>(codes, row, term, terms, to);
}

// Values of 4-bit codes that have a byte each.
inline void look_up_bytes(const std::uint8_t* codes, std::int64_t count, const float (&values)[16],
                          float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = values[codes[i]];
}

// The numbers of some terms of a row, at most a slice of them.
inline void decode_line(const WeightCodes& codes, std::int64_t row, std::int64_t term,
                        std::int64_t terms, float* to) {
  const bool tiled = codes.layout != WeightLayout::RowMajor;
  std::uint8_t gathered[math::kTensorCoreSlice];
  if (tiled) gather_codes(codes, row, term, terms, gathered);
  const std::int64_t code = row * codes.row_stride + term;
  // Where the terms begin among those that segments divide.
  const std::int64_t begin = codes.has_blocks() ? row * codes.terms + term : term;
  for (std::int64_t done = 0; done < terms;) {
    const std::int64_t segment = codes.segment_size ? (begin + done) / codes.segment_size : 0;
    std::int64_t count = terms - done;
    if (codes.segment_size)
      count = std::min(count, (segment + 1) * codes.segment_size - begin - done);
    if (is_four_bit(codes.dtype)) {
      alignas(64) float values[16];
      load_values(codes, row, segment, values);
      if (tiled)
        look_up_bytes(gathered + done, count, values, to + done);
      else
        look_up_nibbles(codes, code + done, count, values, to + done);
    } else {
      const std::uint8_t* const bytes = (tiled ? gathered : codes.data + code) + done;
      scale_integers(codes, row, segment, reinterpret_cast<const std::int8_t*>(bytes), count,
                     to + done);
      round_numbers(codes.values, to + done, count);
    }
    done += count;
  }
}

}  // namespace planq::host::PLANQ_LEVEL
