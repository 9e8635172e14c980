// What the kernels of optimizer_step on both backends read of a call.
#pragma once

#include "core/rejects.h"
#include "core/scalar.h"
#include "ops/optimizer/arithmetic.h"
#include "ops/optimizer/optimizer_step/desc.h"

namespace planq::optimizer_step {

using optimizer::Factors;
using optimizer::kMostStates;
using optimizer::Rule;
using optimizer::Sources;
using optimizer::States;
using optimizer::Trust;

inline Sources sources_of(const Fields& f, const Operands& operands) {
  return {real_of(operands[kLr]),          real_of(operands[kBeta1]),
          real_of(operands[kBeta2]),       real_of(operands[kBeta3]),
          real_of(operands[kAlpha]),       real_of(operands[kEps]),
          real_of(operands[kWeightDecay]), real_of(operands[kGradientScale], 1),
          real_of(operands[kMaxUnorm]),    real_of(operands[kFoundNonfinite]),
          integer_of(operands[kStep]),     f.advance_step};
}

// A tensor of the list. What it does not have is null.
struct Tensor {
  void* parameter;
  const void* gradient;
  void* states[kMostStates];
  float* absmax[kMostStates];
  float *master, *update_norm;
};

inline Tensor tensor_of(const Operands& operands, std::int64_t index) {
  const auto member = [&](int operand) -> void* {
    const OperandView* members = operands[static_cast<std::size_t>(operand)].members;
    return members ? members[index].data : nullptr;
  };
  Tensor tensor{};
  tensor.parameter = member(kParameter);
  tensor.gradient = member(kGradient);
  for (int k = 0; k < kMostStates; ++k) {
    tensor.states[k] = member(kState + k);
    tensor.absmax[k] = static_cast<float*>(member(kAbsmax + k));
  }
  tensor.master = static_cast<float*>(member(kMaster));
  tensor.update_norm = static_cast<float*>(member(kUpdateNorm));
  return tensor;
}

inline std::uint32_t id_of(const Fields& f, std::int64_t tensor) {
  return static_cast<std::uint32_t>(f.tensor_ids.count > 0 ? f.tensor_ids.data[tensor] : tensor);
}

template <StateFormat kFormat>
Reason rejects_other_format(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::Feature, "state_format", kFormat, descriptor.as<Fields>().state_format);
}

constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis =
        "IEEE operations in one order, scalars in float64; exact integer maxima; norms by a "
        "tree that the number of elements fixes; draws by seed, step, tensor and element"};

}  // namespace planq::optimizer_step
