// The arguments of the kernels in int8_tiles.cuh, int8_few_rows.cuh and float_tiles.cuh.
#pragma once

#include <cstdint>

#include "ops/linear/gemm.h"

namespace planq::linear {

// Which operands have unsigned 8-bit codes. 4-bit codes, signed or not, fit in a signed byte.
enum class Signs : std::uint8_t { BothSigned, UnsignedInput, UnsignedWeight, BothUnsigned };

// How an operand lies in memory. A line is what lies side by side: a row or, if the operand is
// transposed, one term of all rows.
struct OperandLayout {
  std::int64_t stride = 0;  // bytes from a line to the next
  bool transposed = false;
  bool packed = false;    // two codes in a byte
  bool extended = false;  // 4-bit codes are signed
  // Eight codes or numbers, from a multiple of eight in a line on, are an aligned word or vector.
  bool aligned = false;
};

struct Sm80Args {
  Gemm gemm;
  OperandLayout input, weight;
  std::int64_t first_gemm = 0;     // of the batch, in this launch
  std::uint32_t tiles = 0;         // of one gemm
  std::uint32_t tiles_across = 0;  // tiles along the columns
  Signs signs = Signs::BothSigned;
  bool stores_vectors = false;  // four neighbouring outputs are an aligned vector
};

}  // namespace planq::linear
