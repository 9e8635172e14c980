// blockwise_dequantize: elements from the codes of flat blocks and the absmax of each block, which
// may be nested statistics themselves. The arithmetic is in ops/codebook/arithmetic.h.
#pragma once

#include "core/registry.h"
#include "ops/codebook/codebook.h"

namespace planq::blockwise_dequantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  Codebook codebook = Codebook::Given;
  std::int64_t entries = 0;
  std::int64_t block_size = 0;
  DType absmax_dtype = DType::Unset;
  std::int64_t nested_block_size = 0;
  NibbleOrder nibble_order = NibbleOrder::HighFirst;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required(),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, codebook),
    PLANQ_FIELD(Fields, entries).count(),
    PLANQ_FIELD(Fields, block_size).required(),
    PLANQ_FIELD(Fields, absmax_dtype),
    PLANQ_FIELD(Fields, nested_block_size).count(),
    PLANQ_FIELD(Fields, nibble_order),
};

// Positions in Operands.
enum Operand : int {
  kInput,
  kOutput,
  kAbsmax,
  kCodebook,
  kNestedAbsmax,
  kNestedOffset,
  kNestedCodebook
};
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", codes_shape("shape", "input_dtype")},
              {"output", Role::Output, "output_dtype", "shape"},
              {"absmax", Role::Input,
               when(is_set("nested_block_size"), DType::UInt8, "absmax_dtype"), blocks_of("shape")},
              {"codebook", Role::Input, DType::Float32, "entries", is("codebook", Codebook::Given)},
              {"nested_absmax", Role::Input, "absmax_dtype", nested_blocks_of("shape"),
               is_set("nested_block_size")},
              {"nested_offset", Role::Input, "absmax_dtype", 1, is_set("nested_block_size")},
              {"nested_codebook", Role::Input, DType::Float32, kNestedEntries,
               is_set("nested_block_size")}});

inline BlockCounts counts_of(const Fields& f) {
  return {f.shape, f.block_size, f.nested_block_size};
}

}  // namespace planq::blockwise_dequantize
