// What the codebook operators share: the statistics of flat blocks (core/flat.h) as operands.
#pragma once

#include <cstdint>

#include "core/flat.h"
#include "core/operands.h"
#include "core/scope.h"
#include "ops/codebook/vocabulary.h"

namespace planq {

// The number of values of a compiled-in codebook, and the most that a given one may have.
constexpr std::int64_t largest_entries(DType codes) { return is_four_bit(codes) ? 16 : 256; }

// The number of entries of the codebook for nested absmax.
inline constexpr std::int64_t kNestedEntries = 256;

// The number of blocks of a tensor, and the number of blocks of their absmax; the latter is 0
// without nested statistics.
struct BlockCounts {
  std::int64_t elements = 0, blocks = 0, nested = 0;

  BlockCounts(const Shape& tensor, std::int64_t block_size, std::int64_t nested_block_size)
      : elements(tensor.elements()),
        blocks(groups_of(elements, block_size)),
        nested(nested_block_size > 0 ? groups_of(blocks, nested_block_size) : 0) {}
};

// The shapes of the statistics of blocks, and of nested statistics.
constexpr Rule blocks_of(const char* tensor) {
  return groups_of(elements_of(tensor), "block_size");
}
constexpr Rule nested_blocks_of(const char* tensor) {
  return groups_of(blocks_of(tensor), "nested_block_size");
}

// The fields that an encoder and a decoder need, independent of the operator.
struct CodebookEncoding {
  Shape shape;
  DType output_dtype = DType::UInt8;
  Codebook codebook = Codebook::Given;
  std::int64_t entries = 256;
  std::int64_t block_size = 1;
  Quotient quotient = Quotient::Reciprocal;
  NonFinite nonfinite = NonFinite::Propagate;
  Rounding rounding = Rounding::NearestEven;
  NibbleOrder nibble_order = NibbleOrder::HighFirst;

  template <class Fields>
  static CodebookEncoding of(const Fields& f, std::int64_t block_size) {
    return {f.shape,    f.output_dtype, f.codebook, f.entries,     block_size,
            f.quotient, f.nonfinite,    f.rounding, f.nibble_order};
  }
};

struct CodebookDecoding {
  Shape shape;
  DType input_dtype = DType::UInt8;
  Codebook codebook = Codebook::Given;
  std::int64_t entries = 256;
  std::int64_t block_size = 1;
  DType absmax_dtype = DType::Float32;
  std::int64_t nested_block_size = 0;
  NibbleOrder nibble_order = NibbleOrder::HighFirst;
};

}  // namespace planq
