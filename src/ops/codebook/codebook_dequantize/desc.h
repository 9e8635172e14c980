// codebook_dequantize: elements from codes and one absmax for the whole tensor, or none. The
// arithmetic is in ops/codebook/arithmetic.h.
#pragma once

#include "core/registry.h"
#include "ops/codebook/codebook.h"
#include "ops/codebook/vocabulary.h"

namespace planq::codebook_dequantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  Codebook codebook = Codebook::Given;
  std::int64_t entries = 0;
  bool normalized = false;
  DType absmax_dtype = DType::Unset;
  NibbleOrder nibble_order = NibbleOrder::HighFirst;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required(),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, codebook),
    PLANQ_FIELD(Fields, entries).count(),
    PLANQ_FIELD(Fields, normalized),
    PLANQ_FIELD(Fields, absmax_dtype).from("absmax.dtype"),
    PLANQ_FIELD(Fields, nibble_order),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kAbsmax, kCodebook };
inline constexpr auto kOperands = operands(
    kFields,
    {{"input", Role::Input, "input_dtype", codes_shape("shape", "input_dtype")},
     {"output", Role::Output, "output_dtype", "shape"},
     {"absmax", Role::Input, "absmax_dtype", 1, !Rule("normalized")},
     {"codebook", Role::Input, DType::Float32, "entries", is("codebook", Codebook::Given)}});

}  // namespace planq::codebook_dequantize
