// linear_w8a8_dynamic: a linear layer of floating activations and integer weights. The rows are
// quantized as dynamic_range_quantize does, and multiplied as linear_w8a8 does: one plan and one
// workspace of those two, and of code_sum where the weights have zero points.
#pragma once

#include <array>
#include <cstddef>

#include "core/parts.h"
#include "core/scratch.h"
#include "ops/linear/checks.h"
#include "ops/linear/operand_lines.h"

namespace planq::linear_w8a8_dynamic {

struct Fields {
  Shape input_shape;   // (..., m, k)
  Shape weight_shape;  // (n, k)
  DType input_dtype = DType::Unset;
  DType weight_dtype = DType::Int8;
  DType output_dtype = DType::Unset;
  Scope input_scope = {ScopeKind::Token};
  Scope weight_scope = {ScopeKind::Channel};
  Mode input_mode = Mode::Symmetric;
  Mode weight_mode = Mode::Symmetric;
  DType scale_dtype = DType::Unset;
  DType bias_dtype = DType::Unset;
  DType residual_dtype = DType::Unset;
  Convention convention = Convention::Planq;
  Quotient quotient = Quotient::Divide;
  NonFinite nonfinite = NonFinite::Propagate;
  DType code_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, weight_shape).required().from("weight.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, weight_dtype),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, input_scope),
    PLANQ_FIELD(Fields, weight_scope),
    PLANQ_FIELD(Fields, input_mode),
    PLANQ_FIELD(Fields, weight_mode),
    PLANQ_FIELD(Fields, scale_dtype).from("weight_scale.dtype"),
    PLANQ_FIELD(Fields, bias_dtype).from("bias.dtype"),
    PLANQ_FIELD(Fields, residual_dtype).from("residual.dtype"),
    PLANQ_FIELD(Fields, convention),
    PLANQ_FIELD(Fields, quotient),
    PLANQ_FIELD(Fields, nonfinite),
    PLANQ_FIELD(Fields, code_dtype),
};

// Positions in Operands.
enum Operand : int {
  kInput,
  kWeight,
  kOutput,
  kWeightScale,
  kWeightZeroPoint,
  kWeightSum,
  kBias,
  kResidual
};
inline constexpr auto kOperands = operands(
    kFields,
    {{"input", Role::Input, "input_dtype", "input_shape"},
     {"weight", Role::Input, "weight_dtype", packed_shape("weight_shape", "weight_dtype")},
     {"output", Role::Output, "output_dtype", linear::layer_output()},
     {"weight_scale", Role::Input, "scale_dtype", parameter_shape("weight_shape", "weight_scope")},
     {"weight_zero_point", Role::Input, DType::Int32,
      parameter_shape("weight_shape", "weight_scope"), is("weight_mode", Mode::Asymmetric)},
     {"weight_sum", Role::Input, DType::Int32, axis_of("weight_shape", 0),
      is("input_mode", Mode::Asymmetric)},
     linear::bias_line(),
     linear::residual_line()});

// The operators that it is made of, in the order of their launches: dynamic_range_quantize,
// code_sum of the activations where the weights have zero points, and linear_w8a8.
struct PartDescriptors {
  std::array<Descriptor, 3> all;
  std::size_t count = 0;

  std::span<const Descriptor> span() const { return {all.data(), count}; }
};
// `fault`: the first fault that a part finds in its descriptor.
PartDescriptors parts_of(const Descriptor& descriptor, Fault& fault);

// Tensors in the workspace that one part writes and another reads.
struct Pieces {
  OperandView codes, scale, zero_point, sum;
  std::byte* rest = nullptr;  // the workspace of the parts' kernels
  std::size_t bytes = 0;      // in front of it
};
Pieces book(const Fields& fields, Scratch& scratch);

// Kernels of both backends.
Reason rejects(const Descriptor& descriptor, const Device& device);
std::size_t workspace(const Descriptor& descriptor, const Device& device);
std::size_t prepared_workspace(const Descriptor& descriptor, const State& state);
Status prepare(const Descriptor& descriptor, const Device& device, State& state);
Status bind(const Call& call, Bound& bound);

template <Backend kBackend, std::int32_t kFirstArch>
constexpr Kernel make_kernel() {
  return {.op = "linear_w8a8_dynamic",
          .body = "parts",
          .revision = 1,
          .backend = kBackend,
          .arch = {kFirstArch},
          .rank = 0,
          .guarantee = {.determinism = Determinism::BitExact,
                        .math = MathPrecision::Int32,
                        .accumulator = DType::Int32,
                        .rounding = Rounding::NearestEven,
                        .max_ulp = 0,
                        .error_bound = kNoErrorBound,
                        .batch_invariant = true,
                        .basis = std::string_view("the plans of dynamic_range_quantize and "
                                                  "linear_w8a8, one after the other")},
          .rejects = rejects,
          .workspace = workspace,
          .prepare = prepare,
          .bind = bind,
          .largest_workspace = workspace,
          .prepared_workspace = prepared_workspace};
}

}  // namespace planq::linear_w8a8_dynamic
