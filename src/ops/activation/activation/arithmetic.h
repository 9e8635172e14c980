// The functions of activations, and where the elements that they are computed of lie.
#pragma once

#include <cstddef>

#include "math/functions.h"
#include "ops/activation/activation/desc.h"

namespace planq::activation {

// max(x, +0); a NaN stays one, and -0 becomes +0.
PLANQ_HD float relu(float x) { return (x < 0 ? 0.0f : x) + 0.0f; }

template <ActivationFunction kFunction>
PLANQ_HD float value_of(float x) {
  if constexpr (kFunction == ActivationFunction::Silu) {
    return math::silu(x);
  } else if constexpr (kFunction == ActivationFunction::GeluTanh) {
    return math::gelu_tanh(x);
  } else if constexpr (kFunction == ActivationFunction::GeluErf) {
    return math::gelu_erf(x);
  } else if constexpr (kFunction == ActivationFunction::Sigmoid) {
    return math::sigmoid(x);
  } else if constexpr (kFunction == ActivationFunction::Relu) {
    return relu(x);
  } else {
    static_assert(kFunction == ActivationFunction::ReluSquared);
    const float y = relu(x);
    return y * y;
  }
}

// Positions in the layout.
enum Side : int { kGateSide, kUpSide, kOutputSide };

// The gate and the up side as tensors of the descriptor's shape. Without a gate the input is the
// gate. Interleaved sides are one tensor, whose elements are pairs.
struct Sides {
  OperandView gate, up;  // up.data is null where it is no tensor of its own
  ElementLayout layout;

  // `whole` keeps the rows of the tensor.
  explicit Sides(const Call& call, bool whole = false) : gate(call.operands[kInput]) {
    const Fields& f = call.fields<Fields>();
    const bool interleaved = f.gated && f.layout == GateLayout::Interleaved;
    if (f.gated && !interleaved) up = f.is_packed() ? gate : call.operands[kUp];
    if (f.is_packed() && !interleaved) {
      OperandView& second = f.layout == GateLayout::Halves ? up : gate;
      second.data =
          static_cast<std::byte*>(second.data) + f.shape.last() * (bits_of(f.input_dtype) / 8);
    }
    const OperandView* const other = up.data ? &up : nullptr;
    layout = element_layout(
        f.shape, Scope{},
        {ElementOperand{&gate}, ElementOperand{other}, ElementOperand{&call.operands[kOutput]}},
        interleaved || whole);
  }
};

}  // namespace planq::activation
