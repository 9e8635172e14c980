// dequantize: elements from codes, or from int32 accumulators, under a scale and a zero point. The
// arithmetic is in affine/affine.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/scope.h"
#include "ops/affine/scale.h"

namespace planq::dequantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  Scope scope;
  Mode mode = Mode::Symmetric;
  DType scale_dtype = DType::Unset;
  DType zero_point_dtype = DType::Unset;
  NibbleOrder nibble_order = NibbleOrder::LowFirst;
  DType bias_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required(),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, scope),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, scale_dtype).from("scale.dtype"),
    PLANQ_FIELD(Fields, zero_point_dtype).from("zero_point.dtype"),
    PLANQ_FIELD(Fields, nibble_order),
    PLANQ_FIELD(Fields, bias_dtype).from("bias.dtype"),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kScale, kZeroPoint, kColumnScale, kBias };
inline constexpr OperandInfo kOperands[] = {
    {"input", Role::Input},
    {"output", Role::Output},
    {"scale", Role::Input},
    {"zero_point", Role::Input, Presence::ByField},
    {"column_scale", Role::Input, Presence::ByField},
    {"bias", Role::Input, Presence::ByField},
};

}  // namespace planq::dequantize
