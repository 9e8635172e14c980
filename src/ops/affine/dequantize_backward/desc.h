// dequantize_backward: the gradient of dequantize with respect to its codes, taken as real numbers.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/scope.h"
#include "ops/affine/scale.h"

namespace planq::dequantize_backward {

struct Fields {
  Shape shape;
  DType output_dtype = DType::Unset;
  Scope scope;
  DType scale_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("grad_output.shape"),
    PLANQ_FIELD(Fields, output_dtype).required().from("grad_output.dtype"),
    PLANQ_FIELD(Fields, scope),
    PLANQ_FIELD(Fields, scale_dtype).from("scale.dtype"),
};

// Positions in Operands.
enum Operand : int { kGradOutput, kGradInput, kScale };
inline constexpr auto kOperands = operands(
    kFields,
    {{"grad_output", Role::Input, "output_dtype", "shape"},
     tensor("grad_input", Role::Output, "output_dtype", "shape").in_place_of("grad_output"),
     {"scale", Role::Input, "scale_dtype", parameter_shape("shape", "scope")}});

// What the kernels of both backends are made of.
struct Gradient {
  using Fields = dequantize_backward::Fields;
  static constexpr std::string_view kName = "dequantize_backward", kElement = "output_dtype";
  static constexpr std::string_view kBasis = "element by element; one product";
  static constexpr std::uint16_t kHostRevision = 1, kCudaRevision = 1;
  static constexpr DType element(const Fields& f) { return f.output_dtype; }
};

}  // namespace planq::dequantize_backward
