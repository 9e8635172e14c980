// codebook_quantize: codes of the elements of a whole tensor, over its largest magnitude, which is
// measured or given, or of elements as they are. The arithmetic is in ops/codebook/arithmetic.h.
#pragma once

#include "core/registry.h"
#include "ops/codebook/codebook.h"
#include "ops/codebook/vocabulary.h"

namespace planq::codebook_quantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  Codebook codebook = Codebook::Given;
  std::int64_t entries = 0;
  bool normalized = false;
  bool absmax_given = false;
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
    PLANQ_FIELD(Fields, normalized),
    PLANQ_FIELD(Fields, absmax_given),
    PLANQ_FIELD(Fields, quotient),
    PLANQ_FIELD(Fields, nonfinite),
    PLANQ_FIELD(Fields, rounding),
    PLANQ_FIELD(Fields, nibble_order),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kAbsmax, kCodebook, kSeed, kOffset };
inline constexpr OperandInfo kOperands[] = {
    {"input", Role::Input},
    {"output", Role::Output},
    {"absmax", Role::Output, Presence::ByField},
    {"codebook", Role::Input, Presence::ByField},
    {"seed", Role::Input, Presence::ByField, OperandKind::Scalar},
    {"offset", Role::Input, Presence::ByField, OperandKind::Scalar},
};

}  // namespace planq::codebook_quantize
