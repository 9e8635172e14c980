// Weights that are codes, of integers, of small floats or of a codebook, and what codes stand for:
// the numbers that dequantize and blockwise_dequantize write, or numbers apart from their scales.
#pragma once

#include <array>

#include "math/tensor_core.h"
#include "ops/affine/affine.h"
#include "ops/affine/microscaling.h"
#include "ops/codebook/statistics.h"
#include "ops/linear/vocabulary.h"
#include "ops/packing/fragment_order.h"
#include "ops/packing/mixed_dtype_layout.h"

namespace planq::linear {

// The scales of a weight's segments, one after another. They are floats, or bytes that stand for
// floats: nested statistics, powers of two, or float8_e4m3fn numbers times a scale of the tensor.
struct SegmentScales {
  BlockStatistics stored = {};  // without data: there are none
  const float* tensor_scale = nullptr;
  std::int64_t pitch = 0;  // from those of a row to the next; of blocks too, where they divide rows
  // The weight's first segment among those of nested statistics, whose blocks run through all.
  std::int64_t first_nested = 0;

  PLANQ_HD bool exist() const { return stored.absmax != nullptr; }
  PLANQ_HD bool are_nested() const { return stored.nested_block_size != 0; }
  // Whether a scale is one byte.
  PLANQ_HD bool are_bytes() const { return are_nested() || is_fp8(stored.dtype); }
  // What a byte stands for; a nested one is then restored with the absmax of its block.
  PLANQ_HD float value_of(std::uint8_t byte) const {
    if (are_nested()) return stored.nested_codebook[byte];
    return math::group_scale(byte, stored.dtype, tensor_scale ? *tensor_scale : 0.0f);
  }
  PLANQ_HD float at(std::int64_t index) const {
    if (is_fp8(stored.dtype))
      return value_of(static_cast<const std::uint8_t*>(stored.absmax)[index]);
    return stored.at<float>(first_nested + index);
  }
};

// Codes (n, k), row-major or in tiles. Each segment of consecutive codes has one scale. Segments
// are either blocks, which run on from row to row, or groups of a row's terms. Codes without scales
// are the numbers themselves: see without_scales.
struct WeightCodes {
  const std::uint8_t* data = nullptr;
  DType dtype = DType::UInt4;   // of 4 or 8 bits
  DType values = DType::Unset;  // to what dequantized numbers are rounded
  NibbleOrder nibble_order = NibbleOrder::LowFirst;
  WeightLayout layout = WeightLayout::RowMajor;
  std::int64_t row_stride = 0;       // codes from a row to the next; of tiles, bytes
  std::int64_t rows = 0, terms = 0;  // n, k
  // 16 values of 4-bit codes. Null: codes are integers, or floats of 8 bits.
  const float* codebook = nullptr;
  bool codebook_is_operand = false;  // else it is one of the library's tables
  std::int64_t segment_size = 0;     // 0: there are no segments
  bool has_blocks = false;           // segments are blocks
  SegmentScales scales = {};
  // Of groups of integers.
  const void* zero_point = nullptr;
  DType zero_point_dtype = DType::Int32;
  std::int64_t zero_point_row = 0;

  PLANQ_HD bool has_codebook() const { return codebook != nullptr; }
  PLANQ_HD std::int32_t stored_zero_point(std::int64_t row, std::int64_t group) const {
    return math::load_integer(zero_point, row * zero_point_row + group, zero_point_dtype,
                              NibbleOrder::LowFirst);
  }
};

// The values of float4_e2m1fn codes.
inline const std::array<float, 16> kE2M1Values = [] {
  std::array<float, 16> values{};
  for (std::uint32_t code = 0; code < values.size(); ++code) values[code] = math::e2m1_value(code);
  return values;
}();

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
// The number that a code stands for, less a zero point; floats have none. `codebook`: its 16
// values, where there are such; device code keeps them elsewhere.
PLANQ_HD float number_of(const WeightCodes& codes, const float* codebook, std::uint8_t code,
                         std::int32_t zero_point) {
  if (codes.has_codebook()) return codebook[code];
  if (is_fp8(codes.dtype)) return math::float8_value<float>(code, codes.dtype);
  return static_cast<float>(static_cast<std::int64_t>(integer_of(codes.dtype, code)) - zero_point);
}

template <class T>
PLANQ_HD float rounded_to(float value) {
  return math::widen(math::narrow<T>(value));
}
PLANQ_HD float rounded_to(DType dtype, float value) {
  if (dtype == DType::Float16) return rounded_to<math::Half>(value);
  return dtype == DType::BFloat16 ? rounded_to<math::Bfloat16>(value) : value;
}

// The segment of (row, term). Blocks are numbered through all rows, groups from the beginning of
// their row.
PLANQ_HD std::int64_t segment_of(const WeightCodes& codes, std::int64_t row, std::int64_t term) {
  return ((codes.has_blocks ? row * codes.terms : 0) + term) / codes.segment_size;
}
PLANQ_HD std::int64_t scale_index(const WeightCodes& codes, std::int64_t row,
                                  std::int64_t segment) {
  return (codes.has_blocks ? 0 : row * codes.scales.pitch) + segment;
}

// The dequantized number (row, term). `codebook` as number_of has it.
PLANQ_HD float number_at(const WeightCodes& codes, const float* codebook, std::int64_t row,
                         std::int64_t term) {
  const std::uint8_t code = code_at(codes, row, term);
  if (!codes.scales.exist()) return rounded_to(codes.values, number_of(codes, codebook, code, 0));
  const std::int64_t segment = segment_of(codes, row, term);
  const std::int32_t zero_point = codes.zero_point ? codes.stored_zero_point(row, segment) : 0;
  const float scale = codes.scales.at(scale_index(codes, row, segment));
  return rounded_to(codes.values, scale * number_of(codes, codebook, code, zero_point));
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
  return counted_zero_point(codes.dtype, codes.stored_zero_point(row, term / codes.segment_size));
}

// The number (row, term) before it is scaled, rounded to the type of the numbers. `codebook` as
// number_of has it.
PLANQ_HD float unscaled_at(const WeightCodes& codes, const float* codebook, std::int64_t row,
                           std::int64_t term) {
  return rounded_to(codes.values, number_of(codes, codebook, code_at(codes, row, term),
                                            zero_point_at(codes, row, term)));
}
PLANQ_HD float scale_at(const WeightCodes& codes, std::int64_t row, std::int64_t term) {
  return codes.scales.at(scale_index(codes, row, segment_of(codes, row, term)));
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
  bool has_codebook = false, has_zero_points = false;
  bool high_first = false;  // of two codes in a byte, the upper one comes first
  // Scales are float32, and zero points int32. Others are widened on the way.
  bool has_words = true;
  int run = 0;  // terms
};
inline CodeKind kind_of(const WeightCodes& codes) {
  const SegmentScales& scales = codes.scales;
  return {codes.dtype,
          codes.values,
          codes.has_codebook(),
          codes.zero_point != nullptr,
          codes.nibble_order == NibbleOrder::HighFirst,
          scales.stored.dtype == DType::Float32 && !scales.are_nested() &&
              codes.zero_point_dtype == DType::Int32,
          run_terms(codes)};
}

// The same codes, which then stand for their unscaled numbers alone.
inline WeightCodes without_scales(WeightCodes codes) {
  codes.scales = {};
  if (!codes.zero_point) codes.segment_size = 0;
  return codes;
}

}  // namespace planq::linear
