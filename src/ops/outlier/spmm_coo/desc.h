// spmm_coo: a sparse matrix, given as a row-major list of entries, times a dense weight; added onto
// the output where the descriptor asks for it.
#pragma once

#include <string_view>

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/outlier/coo.h"
#include "ops/outlier/magnitudes.h"

namespace planq::spmm_coo {

struct Fields {
  Shape shape;  // of the sparse matrix
  std::int64_t capacity = 0;
  DType value_dtype = DType::Unset;
  Shape weight_shape;
  DType weight_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  bool accumulate = false;
  bool transpose_weight = false;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required(),
    PLANQ_FIELD(Fields, capacity).required(),
    PLANQ_FIELD(Fields, value_dtype).required().from("value.dtype"),
    PLANQ_FIELD(Fields, weight_shape).required().from("weight.shape"),
    PLANQ_FIELD(Fields, weight_dtype).required().from("weight.dtype"),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, accumulate),
    PLANQ_FIELD(Fields, transpose_weight),
};

// Positions in Operands.
enum Operand : int { kRowIndex, kColumnIndex, kValue, kCount, kWeight, kStats, kOutput };
inline constexpr auto kOperands = operands(
    kFields, {{"row_index", Role::Input, DType::Int32, "capacity"},
              {"column_index", Role::Input, DType::Int32, "capacity"},
              {"value", Role::Input, "value_dtype", "capacity"},
              {"count", Role::Input, DType::Int64, 1},
              {"weight", Role::Input, "weight_dtype", "weight_shape"},
              {"stats", Role::Input, DType::Float32, axis_of("weight_shape", "transpose_weight"),
               is("weight_dtype", DType::Int8)},
              {"output", when("accumulate", Role::InOut, Role::Output), "output_dtype",
               axes(leading("shape"), axis_of("weight_shape", "transpose_weight"))}});

// Columns of the output, which are rows of the weight unless it is transposed.
inline std::int64_t output_columns(const Fields& f) {
  return f.weight_shape[f.transpose_weight ? 1 : 0];
}
inline bool has_stats(const Fields& f) { return f.weight_dtype == DType::Int8; }

// Both backends promise the same.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = "one fma an entry in the order of the list; one rounding at the end; no atomics"};

template <DType kWeightType, DType kOutputType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "weight_dtype", kWeightType, f.weight_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "output_dtype", kOutputType, f.output_dtype);
}

// The value of an entry, widened to float.
PLANQ_HD float value_at(const void* values, std::int64_t index, DType dtype) {
  if (dtype == DType::Float16) return math::widen(static_cast<const math::Half*>(values)[index]);
  if (dtype == DType::BFloat16)
    return math::widen(static_cast<const math::Bfloat16*>(values)[index]);
  return static_cast<const float*>(values)[index];
}

// 1/127 in float32, which turns an absmax into a scale.
inline constexpr float kInverse127 = 0x1.020408p-7f;
PLANQ_HD float scaled(float sum, float absmax) { return sum * absmax * kInverse127; }

}  // namespace planq::spmm_coo
