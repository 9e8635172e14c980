// What the kernels of sm80/int8_tiles.cuh, sm80/float_tiles.cuh and sm80/int8_few_rows.cuh are
// launched with.
#pragma once

#include <cstdint>

#include "ops/linear/gemm.h"

namespace planq::linear {

// Which sides have codes of 0 to 255. 4-bit codes of either kind fit in a signed byte.
enum class Signs : std::uint8_t { BothSigned, UnsignedInput, UnsignedWeight, BothUnsigned };

// How a side lies in memory. Its lines are its rows or, transposed, its terms.
struct OperandLayout {
  std::int64_t stride = 0;  // bytes from a line to the next
  bool transposed = false;
  bool packed = false;    // two codes a byte
  bool extended = false;  // and these have signs
  // Eight codes, or numbers, from a multiple of eight in a line on, are an aligned word or vector.
  bool aligned = false;
};

struct Sm80Args {
  Gemm gemm;
  OperandLayout input, weight;
  std::int64_t first_gemm = 0;     // of the batch
  std::uint32_t tiles = 0;         // of one product
  std::uint32_t tiles_across = 0;  // of its columns
  Signs signs = Signs::BothSigned;
  bool stores_vectors = false;  // four outputs are an aligned vector
};

}  // namespace planq::linear
