// linear_gguf: a linear layer whose weights are blocks of a GGUF file, as they lie there. The input
// is codes with a scale for every 32, or floats that dynamic_range_quantize makes such codes of.
// docs/numerics/gguf.md has the order of the sums.
#pragma once

#include <array>
#include <cstddef>

#include "core/parts.h"
#include "core/rejects.h"
#include "core/scratch.h"
#include "core/sku.h"
#include "ops/gguf/operand_lines.h"
#include "ops/linear/gemm.h"
#include "ops/linear/operand_lines.h"

namespace planq::linear_gguf {

// Codes of the input that share a scale.
inline constexpr int kGroup = 32;
// Terms whose products are added up in one chain that begins at zero.
inline constexpr int kSpan = 256;

struct Fields {
  Shape input_shape;   // (..., m, k)
  Shape weight_shape;  // (n, k)
  GgufType type = GgufType::Q4_0;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  DType bias_dtype = DType::Unset;
  DType residual_dtype = DType::Unset;

  linear::OperandField input() const { return {input_shape, input_dtype}; }
  // Its strides count bytes.
  linear::OperandField weight() const { return {weight_shape, DType::UInt8}; }
  bool has_codes() const { return input_dtype == DType::Int8; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, weight_shape).required(),
    PLANQ_FIELD(Fields, type).required(),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, bias_dtype).from("bias.dtype"),
    PLANQ_FIELD(Fields, residual_dtype).from("residual.dtype"),
};

// Positions in Operands.
enum Operand : int { kInput, kWeight, kOutput, kInputScale, kBias, kResidual };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "input_shape"},
                       {"weight", Role::Input, DType::UInt8,
                        axes(linear::layer_columns(), gguf::bytes_of_row("weight_shape"))},
                       {"output", Role::Output, "output_dtype", linear::layer_output()},
                       {"input_scale", Role::Input, DType::Float32,
                        with_axis("input_shape", -1, groups_of(last_of("input_shape"), kGroup)),
                        is("input_dtype", DType::Int8)},
                       linear::bias_line(),
                       linear::residual_line()});

// What the kernels of codes compute. Of the weights, a row's stride counts bytes; a row of the
// input has a scale for every kGroup codes, side by side.
inline linear::Gemm gemm_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  return linear::make_gemm(
      f.input(), f.weight(),
      {.input = &operands[kInput],
       .weight = &operands[kWeight],
       .output = &operands[kOutput],
       .input_scale = &operands[kInputScale],
       .bias = f.bias_dtype == DType::Unset ? nullptr : &operands[kBias],
       .residual = f.residual_dtype == DType::Unset ? nullptr : &operands[kResidual]});
}

// --- Kernels of codes ----------------------------------------------------------------------------

inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::Int32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis =
        "exact integer sums of 16 or 32 products; a chain of fused multiply-adds for every 256 "
        "terms, and a chain of sums over these, in one order"};

template <DType kOutputType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", DType::Int8, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "output_dtype", kOutputType, f.output_dtype);
}

// The kernels of all block types that write one type.
template <DType kOutputType, Backend kBackend>
constexpr Kernel kernel(decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind,
                        decltype(Kernel::workspace) workspace = no_workspace) {
  return {.op = "linear_gguf",
          .body = "blocks",
          .dtypes = kDTypes<DType::Int8, kOutputType>,
          .revision = 1,
          .backend = kBackend,
          .arch = kBackend == Backend::Host ? ArchRange{} : ArchRange{80, kLastArch},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kOutputType>,
          .workspace = workspace,
          .prepare = prepare,
          .bind = bind};
}

// --- The kernel of floats, which is made of others: see parts.cpp --------------------------------

// dynamic_range_quantize, and this operator with its codes. `fault`: the first fault that a part
// finds in its descriptor.
std::array<Descriptor, 2> parts_of(const Descriptor& descriptor, Fault& fault);

Reason rejects_of_parts(const Descriptor& descriptor, const Device& device);
std::size_t workspace_of_parts(const Descriptor& descriptor, const Device& device);
std::size_t prepared_workspace_of_parts(const Descriptor& descriptor, const State& state);
Status prepare_parts(const Descriptor& descriptor, const Device& device, State& state);
Status bind_parts(const Call& call, Bound& bound);

template <Backend kBackend>
constexpr Kernel kernel_of_parts() {
  return {.op = "linear_gguf",
          .body = "parts",
          .revision = 1,
          .backend = kBackend,
          .arch = kBackend == Backend::Host ? ArchRange{} : ArchRange{80, kLastArch},
          .rank = 0,
          .guarantee = {.determinism = Determinism::BitExact,
                        .math = MathPrecision::Int32,
                        .accumulator = DType::Float32,
                        .rounding = Rounding::NearestEven,
                        .max_ulp = 0,
                        .error_bound = kNoErrorBound,
                        .batch_invariant = true,
                        .basis = std::string_view("the plans of dynamic_range_quantize and "
                                                  "linear_gguf of its codes, one after the other")},
          .rejects = rejects_of_parts,
          .workspace = workspace_of_parts,
          .prepare = prepare_parts,
          .bind = bind_parts,
          .largest_workspace = workspace_of_parts,
          .prepared_workspace = prepared_workspace_of_parts};
}

}  // namespace planq::linear_gguf
