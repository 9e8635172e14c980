// The input of a product as the loops of host kernels read it, and the part of a product that one
// of them computes at a time.
#pragma once

#include <cstdint>

#include "ops/gguf/products/order.h"
#include "ops/gguf/vocabulary.h"
#include "ops/linear/gemm.h"

namespace planq::gguf::products {

// A span of a row of the input, with all that a product needs to know of it. Spans with the same
// terms follow one another, row by row: rows that are far apart in memory would evict one another
// from the cache.
struct alignas(32) InputSpan {
  std::int8_t codes[kSpan];
  float scale[kSpan / kGroup];
  // Of each sub-block of the weights: what the sum of products begins at, since kernels multiply
  // codes that are so much above the true ones; and the sum of the codes, times their scale.
  std::int32_t start[kSpan / 16];
  float sum[kSpan / 16];
};

constexpr std::int64_t spans_of(std::int64_t terms) { return (terms + kSpan - 1) / kSpan; }

// Rows of a block.
inline constexpr int kMostRows = 96;

// Rows of the input and columns of the weights. `spans` are those of the rows, at the first terms;
// span_step further come those of the next terms.
struct Block {
  std::int64_t row, rows, column, columns;
  const InputSpan* spans;
  std::int64_t span_step;
  bool has_least;  // whether a code of the input is -128
};

// The loops of an instruction set.
struct Loops {
  int columns;  // of a block
  // Fills a span of a row, from a term on. Says whether a code is -128.
  bool (*fill)(GgufType type, const linear::Gemm& gemm, std::int64_t row, std::int64_t first,
               InputSpan& span);
  void (*compute)(GgufType type, const linear::Gemm& gemm, const Block& block);
};

}  // namespace planq::gguf::products
