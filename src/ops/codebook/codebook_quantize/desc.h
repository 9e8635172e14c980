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
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", "shape"},
              {"output", Role::Output, "output_dtype", codes_shape("shape", "output_dtype")},
              {"absmax", when("absmax_given", Role::Input, Role::Output),
               compute_dtype("input_dtype"), 1, !Rule("normalized")},
              {"codebook", Role::Input, DType::Float32, "entries", is("codebook", Codebook::Given)},
              scalar("seed", Role::Input, DType::Int64, is("rounding", Rounding::Stochastic)),
              scalar("offset", Role::Input, DType::Int64, is("rounding", Rounding::Stochastic))});

}  // namespace planq::codebook_quantize
