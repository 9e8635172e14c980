// Weights that are codes of integers or of a codebook, and what gives them back as the numbers that
// dequantize and blockwise_dequantize write.
#pragma once

#include "ops/codebook/statistics.h"

namespace planq::linear {

// Codes (n, k), a row's next to one another, or in tiles. Numbers belong to segments of codes one
// after another, each with one statistic: blocks, which go on from row to row and have an absmax,
// or groups of a row's terms, which have a scale. Codes without either are the numbers themselves.
struct WeightCodes {
  const std::uint8_t* data = nullptr;
  DType dtype = DType::UInt4;   // int8, int4 or uint4
  DType values = DType::Unset;  // what numbers are rounded to
  NibbleOrder nibble_order = NibbleOrder::LowFirst;
  WeightLayout layout = WeightLayout::RowMajor;
  std::int64_t row_stride = 0;  // codes from a row to the next; of layouts in tiles, memory's bytes
  std::int64_t rows = 0, terms = 0;  // n, k
  std::int64_t segment_size = 0;     // 0: there are no segments
  // Of blocks.
  const float* codebook = nullptr;  // 16 values; null: codes are integers
  BlockStatistics statistics = {};
  // Of groups; zero points only where there are any.
  const float* scale = nullptr;
  const std::int32_t* zero_point = nullptr;
  std::int64_t scale_row = 0, zero_point_row = 0;

  bool has_blocks() const { return codebook != nullptr; }
};

}  // namespace planq::linear
