// What the straight-through gradients of quantize and fake_quantize have in common, whatever the
// backend: their operands, where these lie, and what their kernels say of themselves.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/elementwise.h"
#include "core/registry.h"

namespace planq::straight_through {

// Positions in Operands.
enum Operand : int { kGradOutput, kInput, kGradInput, kScale, kZeroPoint };
constexpr auto operands_of(std::span<const Field> fields) {
  return operands(
      fields,
      {{"grad_output", Role::Input, "input_dtype", "shape"},
       {"input", Role::Input, "input_dtype", "shape"},
       tensor("grad_input", Role::Output, "input_dtype", "shape").in_place_of("grad_output"),
       {"scale", Role::Input, "scale_dtype", parameter_shape("shape", "scope")},
       {"zero_point", Role::Input, "zero_point_dtype",
        packed_shape(parameter_shape("shape", "scope"), "zero_point_dtype"),
        is("mode", Mode::Asymmetric)}});
}

template <class Fields>
std::array<ElementOperand, 5> layout_of(const Fields& f, const Operands& operands) {
  const bool asymmetric = f.mode == Mode::Asymmetric;
  return {ElementOperand{&operands[kGradOutput]},
          {&operands[kInput]},
          {&operands[kGradInput]},
          {&operands[kScale]},
          {asymmetric ? &operands[kZeroPoint] : nullptr, is_four_bit(f.zero_point_dtype)}};
}

// For gradient_kernels.h; an operator adds its name.
template <class OwnFields>
struct Gradient {
  using Fields = OwnFields;
  static constexpr std::string_view kElement = "input_dtype";
  static constexpr std::uint16_t kHostRevision = 2, kCudaRevision = 1;
  static constexpr std::string_view kBasis =
      "element by element; the quotient of the forward pass; exact integer sums";
  static constexpr DType element(const Fields& f) { return f.input_dtype; }
};

}  // namespace planq::straight_through
