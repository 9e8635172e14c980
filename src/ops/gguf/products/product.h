// A product of an input with a weight that is blocks, as they lie in memory.
#pragma once

#include "ops/gguf/vocabulary.h"
#include "ops/linear/gemm.h"

namespace planq::gguf {

// Of the gemm's weights, a row's stride counts bytes; a row of its input has int8 codes with a
// scale for every kGroup of them, side by side, or floats.
struct Product {
  GgufType type = GgufType::Q4_0;
  linear::Gemm gemm;
};

// The most that are computed together.
inline constexpr int kMostProducts = 8;

}  // namespace planq::gguf
