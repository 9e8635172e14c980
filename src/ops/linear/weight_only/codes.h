// Weights that are codes, of integers or of a codebook, and what codes stand for: the numbers that
// dequantize and blockwise_dequantize write, or numbers apart from their scales.
#pragma once

#include "math/tensor_core.h"
#include "ops/affine/affine.h"
#include "ops/codebook/statistics.h"
#include "ops/linear/vocabulary.h"
#include "ops/packing/fragment_order.h"
#include "ops/packing/mixed_dtype_layout.h"

namespace planq::linear {

// Codes (n, k), row-major or in tiles. Each segment of consecutive codes has one statistic.
// Segments are either blocks, which run on from row to row and have an absmax, or groups of a row's
// terms, which have a scale. Codes without segments are the numbers themselves. The same struct
// without absmax and scale is that of the numbers before they are scaled: see without_scales.
struct WeightCodes {
  const std::uint8_t* data = nullptr;
  DType dtype = DType::UInt4;   // int8, int4 or uint4
  DType values = DType::Unset;  // to what dequantized numbers are rounded
  NibbleOrder nibble_order = NibbleOrder::LowFirst;
  WeightLayout layout = WeightLayout::RowMajor;
  std::int64_t row_stride = 0;       // codes from a row to the next; of tiles, bytes
  std::int64_t rows = 0, terms = 0;  // n, k
  std::int64_t segment_size = 0;     // 0: there are no segments
  // Of blocks.
  const float* codebook = nullptr;   // 16 values; null: codes are integers
  bool codebook_is_operand = false;  // else it is one of the library's tables
  BlockStatistics statistics = {};
  // Of groups.
  const float* scale = nullptr;
  const std::int32_t* zero_point = nullptr;
  std::int64_t scale_row = 0, zero_point_row = 0;

  PLANQ_HD bool has_blocks() const { return codebook != nullptr; }
};

// --- Codes of layouts in tiles: a nibble or a byte -----------------------------------------------

// Of WeightLayout::Packed.
PLANQ_HD std::uint8_t packed_code(const WeightCodes& codes, std::int64_t row, std::int64_t term) {
  constexpr int kTile = FragmentOrder::kTile;
  const int nibble =
      FragmentOrder::nibble(static_cast<int>(row % kTile), static_cast<int>(term % kTile));
  const int byte = codes.data[row / kTile * codes.row_stride +
                              term / kTile * FragmentOrder::kTileBytes + nibble / 2];
  return static_cast<std::uint8_t>((byte >> nibble % 2 * 4 & 15) ^
                                   FragmentOrder::flipped(codes.dtype));
}

// Where WeightLayout::Reordered has a chunk of a row's terms. The operand is transposed: its
// columns are these rows.
template <class Layout>
PLANQ_HD const std::uint8_t* reordered_span(const WeightCodes& codes, std::int64_t row,
                                            std::int64_t chunk) {
  const std::int64_t line = row / Layout::kColumns * (codes.terms / mixed_dtype::kChunk) + chunk;
  const std::int64_t byte =
      line * mixed_dtype::kLineBytes + row % Layout::kColumns * Layout::kSpanBytes;
  // The operand's rows consist of whole spans, and there may be gaps between them.
  const std::int64_t row_bytes = codes.rows / Layout::kPerByte;
  return codes.data + byte / row_bytes * codes.row_stride + byte % row_bytes;
}
template <class Layout>
PLANQ_HD std::uint8_t code_of_span(const std::uint8_t* span, int term) {
  const int lane = Layout::lane(term);
  const int byte = span[Layout::word(term) * 4 + lane / Layout::kPerByte] ^
                   static_cast<int>(Layout::kSigns & 0xFF);
  return static_cast<std::uint8_t>(Layout::kPerByte == 2 ? byte >> lane % 2 * 4 & 15 : byte);
}
template <DType kDType>
PLANQ_HD std::uint8_t reordered_code(const WeightCodes& codes, std::int64_t row,
                                     std::int64_t term) {
  using Layout = mixed_dtype::Layout<kDType>;
  return code_of_span<Layout>(reordered_span<Layout>(codes, row, term / mixed_dtype::kChunk),
                              static_cast<int>(term % mixed_dtype::kChunk));
}

// --- One number at a time ------------------------------------------------------------------------

// The code (row, term) of any layout: a nibble or a byte.
PLANQ_HD std::uint8_t code_at(const WeightCodes& codes, std::int64_t row, std::int64_t term) {
  switch (codes.layout) {
    case WeightLayout::Packed:
      return packed_code(codes, row, term);
    case WeightLayout::Reordered:
      return codes.dtype == DType::Int8 ? reordered_code<DType::Int8>(codes, row, term)
                                        : reordered_code<DType::Int4>(codes, row, term);
    default:
      return static_cast<std::uint8_t>(math::load_integer(
          codes.data, row * codes.row_stride + term,
          is_four_bit(codes.dtype) ? DType::UInt4 : DType::UInt8, codes.nibble_order));
  }
}
// The integer that a code stands for.
PLANQ_HD std::int32_t integer_of(DType dtype, std::uint8_t code) {
  if (dtype == DType::Int8) return static_cast<std::int8_t>(code);
  return dtype == DType::Int4 && code >= 8 ? code - 16 : code;
}

template <class T>
PLANQ_HD float rounded_to(float value) {
  return math::widen(math::narrow<T>(value));
}
PLANQ_HD float rounded_to(DType dtype, float value) {
  if (dtype == DType::Float16) return rounded_to<math::Half>(value);
  return dtype == DType::BFloat16 ? rounded_to<math::Bfloat16>(value) : value;
}

// The dequantized number (row, term). `codebook`: its 16 values, where there are blocks; device
// code keeps them elsewhere.
PLANQ_HD float number_at(const WeightCodes& codes, const float* codebook, std::int64_t row,
                         std::int64_t term) {
  const std::uint8_t code = code_at(codes, row, term);
  float value;
  if (codes.has_blocks()) {
    const std::int64_t block = (row * codes.terms + term) / codes.segment_size;
    value = codebook[code] * codes.statistics.at<float>(block);
  } else if (codes.scale) {
    const std::int64_t group = term / codes.segment_size;
    value = math::dequantized<float>(
        integer_of(codes.dtype, code), codes.scale[row * codes.scale_row + group],
        codes.zero_point ? codes.zero_point[row * codes.zero_point_row + group] : 0);
  } else {
    value = static_cast<float>(integer_of(codes.dtype, code));
  }
  return rounded_to(codes.values, value);
}

// --- Accumulation::GroupsSm90: numbers apart from their scales -----------------------------------

using math::span_terms;

// What a zero point counts as. A code less one of these is a small integer, which 16-bit types
// hold. bfloat16 alone has to round some, of int8 under zero points above 128, which are no codes.
// Kernels shift 4-bit codes in bfloat16, from 128 or 136 on: it has every integer up to 256.
PLANQ_HD std::int32_t counted_zero_point(DType dtype, std::int32_t zero_point) {
  const std::int32_t least = is_four_bit(dtype) ? -120 : -128,
                     most = is_four_bit(dtype) ? 120 : 255;
  const std::int32_t raised = zero_point > least ? zero_point : least;
  return raised < most ? raised : most;
}

// The zero point that counts for code (row, term); 0 where there are none.
PLANQ_HD std::int32_t zero_point_at(const WeightCodes& codes, std::int64_t row, std::int64_t term) {
  if (!codes.zero_point) return 0;
  return counted_zero_point(
      codes.dtype, codes.zero_point[row * codes.zero_point_row + term / codes.segment_size]);
}

// The number (row, term) before it is scaled, rounded to the type of the numbers: an integer less
// its zero point, or a value of the codebook. `codebook` as number_at has it.
PLANQ_HD float unscaled_at(const WeightCodes& codes, const float* codebook, std::int64_t row,
                           std::int64_t term) {
  const std::uint8_t code = code_at(codes, row, term);
  const float value =
      codes.has_blocks()
          ? codebook[code]
          : static_cast<float>(integer_of(codes.dtype, code) - zero_point_at(codes, row, term));
  return rounded_to(codes.values, value);
}

// The number of the scale, or of the block, that (row, term) has. Blocks divide rows.
PLANQ_HD std::int64_t scale_index(const WeightCodes& codes, std::int64_t row, std::int64_t term) {
  const std::int64_t pitch =
      codes.has_blocks() ? codes.terms / codes.segment_size : codes.scale_row;
  return row * pitch + term / codes.segment_size;
}
PLANQ_HD float scale_of(const WeightCodes& codes, std::int64_t index) {
  return codes.has_blocks() ? codes.statistics.at<float>(index) : codes.scale[index];
}
PLANQ_HD float scale_at(const WeightCodes& codes, std::int64_t row, std::int64_t term) {
  return scale_of(codes, scale_index(codes, row, term));
}

// Terms that are multiplied and added before their sum is scaled: 16, 32, 64 or 128. Segments are
// as long, or multiples of 128.
PLANQ_HD int run_terms(const WeightCodes& codes) {
  return codes.segment_size < math::kMostRunTerms ? static_cast<int>(codes.segment_size)
                                                  : math::kMostRunTerms;
}

// What of a weight says which kernels multiply it, whatever its addresses and extents.
struct CodeKind {
  DType dtype = DType::UInt4, values = DType::BFloat16;
  bool has_blocks = false, has_nested = false, has_zero_points = false;
  int run = 0;  // terms
};
inline CodeKind kind_of(const WeightCodes& codes) {
  return {codes.dtype,
          codes.values,
          codes.has_blocks(),
          codes.statistics.nested_block_size != 0,
          codes.zero_point != nullptr,
          run_terms(codes)};
}

// The same codes, which then stand for their unscaled numbers alone.
inline WeightCodes without_scales(WeightCodes codes) {
  codes.scale = nullptr;
  codes.statistics = {};
  if (!codes.zero_point) codes.segment_size = 0;
  return codes;
}

}  // namespace planq::linear
