// What the codebook operators share: the statistics of flat blocks (core/flat.h) as operands.
#pragma once

#include <cstdint>

#include "core/flat.h"
#include "core/operands.h"
#include "core/scope.h"
#include "ops/codebook/vocabulary.h"

namespace planq {

// Values of a compiled-in codebook; the most that a given one may have.
constexpr std::int64_t largest_entries(DType codes) { return is_four_bit(codes) ? 16 : 256; }

// Entries of the codebook that decodes nested absmax, and that quantizes them.
inline constexpr std::int64_t kNestedEntries = 256;

// How many blocks a tensor has, and how many blocks their absmax have; none without nested
// statistics.
struct BlockCounts {
  std::int64_t elements = 0, blocks = 0, nested = 0;

  BlockCounts(const Shape& tensor, std::int64_t block_size, std::int64_t nested_block_size)
      : elements(tensor.elements()),
        blocks(groups_of(elements, block_size)),
        nested(nested_block_size > 0 ? groups_of(blocks, nested_block_size) : 0) {}
};

// What the statistics of blocks are as operands: absmax itself, or the codes of nested statistics
// with the absmax and the mean that belong to them.
inline void expect_statistics(const BlockCounts& counts, DType dtype,
                              std::int64_t nested_block_size, OperandSpec& absmax,
                              OperandSpec& nested_absmax, OperandSpec& nested_offset) {
  const bool nested = nested_block_size > 0;
  absmax.expect(nested ? DType::UInt8 : dtype, Shape{1, {counts.blocks}});
  nested_absmax.expect(dtype, Shape{1, {counts.nested}}, nested);
  nested_offset.expect(dtype, Shape{1, {1}}, nested);
}

// The codebook as an operand.
inline void expect_codebook(Codebook codebook, std::int64_t entries, OperandSpec& spec) {
  spec.expect(DType::Float32, Shape{1, {entries}}, codebook == Codebook::Given);
}

// Seed and offset of stochastic rounding as operands; otherwise they must be absent.
inline void expect_seed(Rounding rounding, OperandSpec& seed, OperandSpec& offset) {
  for (OperandSpec* spec : {&seed, &offset})
    spec->expect(DType::Int64, {}, rounding == Rounding::Stochastic);
}

// What is asked for of an encoder and of a decoder, whichever operator asks.
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
