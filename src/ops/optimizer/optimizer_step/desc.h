// optimizer_step: a step of an optimizer for a list of tensors, in place. The arithmetic is in
// ops/optimizer/arithmetic.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "ops/codebook/codebook.h"
#include "ops/optimizer/arithmetic.h"
#include "ops/optimizer/vocabulary.h"

namespace planq::optimizer_step {

struct Fields {
  ShapeList shapes;
  OptimizerAlgorithm algorithm = OptimizerAlgorithm::Adam;
  DType parameter_dtype = DType::Unset;
  DType gradient_dtype = DType::Unset;
  StateFormat state_format = StateFormat::Float32;
  std::int64_t block_size = 256;
  WeightDecayMode weight_decay_mode = WeightDecayMode::Decoupled;
  TrustRatio trust_ratio = TrustRatio::Default;
  bool nesterov = false;
  bool centered = false;
  bool skip_zeros = false;
  NonFiniteGradient nonfinite = NonFiniteGradient::Propagate;
  Rounding rounding = Rounding::NearestEven;
  bool master = false;
  bool advance_step = false;
  IntegerList tensor_ids;  // none: 0, 1, ...
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shapes).required().from("parameter.shape"),
    PLANQ_FIELD(Fields, algorithm),
    PLANQ_FIELD(Fields, parameter_dtype).required(),
    PLANQ_FIELD(Fields, gradient_dtype).required(),
    PLANQ_FIELD(Fields, state_format),
    PLANQ_FIELD(Fields, block_size),
    PLANQ_FIELD(Fields, weight_decay_mode),
    PLANQ_FIELD(Fields, trust_ratio),
    PLANQ_FIELD(Fields, nesterov),
    PLANQ_FIELD(Fields, centered),
    PLANQ_FIELD(Fields, skip_zeros),
    PLANQ_FIELD(Fields, nonfinite),
    PLANQ_FIELD(Fields, rounding),
    PLANQ_FIELD(Fields, master),
    PLANQ_FIELD(Fields, advance_step),
    PLANQ_FIELD(Fields, tensor_ids),
};

// Positions in Operands. Those of the second and third state follow those of the first.
enum Operand : int {
  kParameter,
  kGradient,
  kState,
  kAbsmax = kState + 3,
  kMaster = kAbsmax + 3,
  kUpdateNorm,
  kCodebook,
  kFoundNonfinite = kCodebook + 3,
  kSeed,
  kOffset,
  kLr,
  kBeta1,
  kBeta2,
  kBeta3,
  kAlpha,
  kEps,
  kWeightDecay,
  kGradientScale,
  kMaxUnorm,
  kStep,
};

// Whether the algorithm has this state, counted from 0. All have the first.
constexpr Rule has_state(int state) {
  if (state == 0) return true;
  std::int64_t plain = 0, centered = 0;
  for (std::size_t i = 0; i < kNames<OptimizerAlgorithm>.size(); ++i) {
    const auto algorithm = static_cast<OptimizerAlgorithm>(i);
    plain |= std::int64_t{optimizer::count_states(algorithm, false) > state} << i;
    centered |= std::int64_t{optimizer::count_states(algorithm, true) > state} << i;
  }
  return is_any<OptimizerAlgorithm>("algorithm", plain) ||
         (is_any<OptimizerAlgorithm>("algorithm", centered) && "centered");
}
constexpr Rule has_codes() { return !is("state_format", StateFormat::Float32); }

constexpr OperandLine state_line(const char* name, int state) {
  return list(name, Role::InOut, when(has_codes(), DType::UInt8, DType::Float32), "shapes",
              has_state(state));
}
constexpr OperandLine absmax_line(const char* name, int state) {
  return list(name, Role::InOut, DType::Float32, "shapes", has_codes() && has_state(state))
      .in_blocks(when(is("state_format", StateFormat::Static8), kSingleMembers, "block_size"));
}
constexpr OperandLine codebook_line(const char* name, int state) {
  return tensor(name, Role::Input, DType::Float32, largest_entries(DType::UInt8),
                has_codes() && has_state(state))
      .optional();
}
constexpr OperandLine number(const char* name, const Rule& present = true) {
  return scalar(name, Role::Input, DType::Float64, present);
}

using enum OptimizerAlgorithm;
inline constexpr auto kOperands = operands(
    kFields,
    {list("parameter", Role::InOut, "parameter_dtype", "shapes"),
     list("gradient", Role::Input, "gradient_dtype", "shapes"),
     state_line("state1", 0),
     state_line("state2", 1),
     state_line("state3", 2),
     absmax_line("absmax1", 0),
     absmax_line("absmax2", 1),
     absmax_line("absmax3", 2),
     list("master", Role::InOut, DType::Float32, "shapes", "master"),
     list("update_norm", Role::Output, DType::Float32, "shapes",
          !is("trust_ratio", TrustRatio::None))
         .in_blocks(kSingleMembers)
         .optional(),
     codebook_line("codebook1", 0),
     codebook_line("codebook2", 1),
     codebook_line("codebook3", 2),
     scalar("found_nonfinite", Role::Input, DType::Float64,
            is("nonfinite", NonFiniteGradient::SkipStep)),
     scalar("seed", Role::Input, DType::Int64, is("rounding", Rounding::Stochastic)),
     scalar("offset", Role::Input, DType::Int64, is("rounding", Rounding::Stochastic)),
     number("lr"),
     number("beta1", !is("algorithm", Adagrad)),
     number("beta2", is("algorithm", Adam, AdEMAMix, Lamb, Momentum, Lars, Lion)),
     number("beta3", is("algorithm", AdEMAMix)),
     number("alpha", is("algorithm", AdEMAMix)),
     number("eps", !is("algorithm", Momentum, Lion) &&
                       !(is("algorithm", Lars) && is("trust_ratio", TrustRatio::Clip))),
     number("weight_decay").optional(),
     number("gradient_scale").optional(),
     number("max_unorm", is("trust_ratio", TrustRatio::Clip) ||
                             (is("algorithm", Lars) && is("trust_ratio", TrustRatio::Layerwise)))
         .optional(),
     scalar("step", when("advance_step", Role::InOut, Role::Input), DType::Int64)});

}  // namespace planq::optimizer_step
