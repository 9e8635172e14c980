// blockwise_quantize: codes of the elements of flat blocks, over the largest magnitude of each
// block, which is measured or given. The arithmetic is in ops/codebook/arithmetic.h.
#pragma once

#include "core/registry.h"
#include "ops/codebook/codebook.h"

namespace planq::blockwise_quantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  Codebook codebook = Codebook::Given;
  std::int64_t entries = 0;
  std::int64_t block_size = 0;
  bool absmax_given = false;
  std::int64_t nested_block_size = 0;
  Quotient quotient = Quotient::Reciprocal;
  NonFinite nonfinite = NonFinite::Propagate;
  Rounding rounding = Rounding::NearestEven;
  NibbleOrder nibble_order = NibbleOrder::HighFirst;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, codebook),
    PLANQ_FIELD(Fields, entries).count(),
    PLANQ_FIELD(Fields, block_size).required(),
    PLANQ_FIELD(Fields, absmax_given),
    PLANQ_FIELD(Fields, nested_block_size).count(),
    PLANQ_FIELD(Fields, quotient),
    PLANQ_FIELD(Fields, nonfinite),
    PLANQ_FIELD(Fields, rounding),
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
  kSeed,
  kOffset
};
inline constexpr auto kOperands = operands(
    kFields,
    {{"input", Role::Input, "input_dtype", "shape"},
     {"output", Role::Output, "output_dtype", codes_shape("shape", "output_dtype")},
     {"absmax", when("absmax_given", Role::Input, Role::Output),
      when(is_set("nested_block_size"), DType::UInt8, compute_dtype("input_dtype")),
      blocks_of("shape")},
     {"codebook", Role::Input, DType::Float32, "entries", is("codebook", Codebook::Given)},
     {"nested_absmax", Role::Output, compute_dtype("input_dtype"), nested_blocks_of("shape"),
      is_set("nested_block_size")},
     {"nested_offset", Role::Output, compute_dtype("input_dtype"), 1, is_set("nested_block_size")},
     scalar("seed", Role::Input, DType::Int64, is("rounding", Rounding::Stochastic)),
     scalar("offset", Role::Input, DType::Int64, is("rounding", Rounding::Stochastic))});

inline BlockCounts counts_of(const Fields& f) {
  return {f.shape, f.block_size, f.nested_block_size};
}

}  // namespace planq::blockwise_quantize
