// percentile_clip: the norm of a tensor beside those of its last 100 steps, and the factor that
// takes it down to a percentile of them.
#pragma once

#include "core/operands.h"
#include "core/registry.h"

namespace planq::percentile_clip {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  std::int64_t percentile = 5;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, percentile),
};

// Squared norms that are remembered.
inline constexpr int kRemembered = 100;

// Positions in Operands.
enum Operand : int { kInput, kHistory, kStep, kGradientScale, kNorm, kClipValue };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "shape"},
                       {"history", Role::InOut, compute_dtype("input_dtype"), kRemembered},
                       scalar("step", Role::Input, DType::Int64),
                       {"gradient_scale", Role::Output, compute_dtype("input_dtype"), 1},
                       {"norm", Role::Output, compute_dtype("input_dtype"), 1},
                       {"clip_value", Role::Output, compute_dtype("input_dtype"), 1}});

// The operator as its kernels see it: ops/statistics/sums.h.
struct Clipping {
  using Fields = percentile_clip::Fields;
  static constexpr std::string_view kName = "percentile_clip";
};

}  // namespace planq::percentile_clip
