// optimizer_step: a step of an optimizer for a list of tensors, in place. The arithmetic is in
// ops/optimizer/arithmetic.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
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

inline constexpr OperandInfo kOperands[] = {
    {"parameter", Role::InOut, Presence::Always, OperandKind::List},
    {"gradient", Role::Input, Presence::Always, OperandKind::List},
    {"state1", Role::InOut, Presence::Always, OperandKind::List},
    {"state2", Role::InOut, Presence::ByField, OperandKind::List},
    {"state3", Role::InOut, Presence::ByField, OperandKind::List},
    {"absmax1", Role::InOut, Presence::ByField, OperandKind::List},
    {"absmax2", Role::InOut, Presence::ByField, OperandKind::List},
    {"absmax3", Role::InOut, Presence::ByField, OperandKind::List},
    {"master", Role::InOut, Presence::ByField, OperandKind::List},
    {"update_norm", Role::Output, Presence::Optional, OperandKind::List},
    {"codebook1", Role::Input, Presence::Optional},
    {"codebook2", Role::Input, Presence::Optional},
    {"codebook3", Role::Input, Presence::Optional},
    {"found_nonfinite", Role::Input, Presence::ByField, OperandKind::Scalar},
    {"seed", Role::Input, Presence::ByField, OperandKind::Scalar},
    {"offset", Role::Input, Presence::ByField, OperandKind::Scalar},
    {"lr", Role::Input, Presence::Always, OperandKind::Scalar},
    {"beta1", Role::Input, Presence::ByField, OperandKind::Scalar},
    {"beta2", Role::Input, Presence::ByField, OperandKind::Scalar},
    {"beta3", Role::Input, Presence::ByField, OperandKind::Scalar},
    {"alpha", Role::Input, Presence::ByField, OperandKind::Scalar},
    {"eps", Role::Input, Presence::ByField, OperandKind::Scalar},
    {"weight_decay", Role::Input, Presence::Optional, OperandKind::Scalar},
    {"gradient_scale", Role::Input, Presence::Optional, OperandKind::Scalar},
    {"max_unorm", Role::Input, Presence::Optional, OperandKind::Scalar},
    {"step", Role::Input, Presence::Always, OperandKind::Scalar},
};

}  // namespace planq::optimizer_step
