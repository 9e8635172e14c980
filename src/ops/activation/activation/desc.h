// activation: a function of each element, or of the gate's elements times those of the up side.
#pragma once

#include "core/elementwise.h"
#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/activation/vocabulary.h"

namespace planq::activation {

struct Fields {
  Shape shape;  // of one side
  ActivationFunction function = ActivationFunction::Silu;
  bool gated = false;
  GateLayout layout = GateLayout::Halves;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;

  bool is_packed() const { return gated && layout != GateLayout::Separate; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required(),
    PLANQ_FIELD(Fields, function).required(),
    PLANQ_FIELD(Fields, gated),
    PLANQ_FIELD(Fields, layout),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype),
};

// Positions in Operands.
enum Operand : int { kInput, kUp, kOutput };
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype",
               when("gated" && !is("layout", GateLayout::Separate),
                    axes(leading("shape"), last_of("shape") * 2), "shape")},
              {"up", Role::Input, "input_dtype", "shape", is("layout", GateLayout::Separate)},
              {"output", Role::Output, "output_dtype", "shape"}});

// All kernels promise the same.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis =
        "each element alone, by IEEE operations of float32 in a fixed order; one rounding to "
        "the output's type"};

template <DType kInputType, DType kOutputType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", kInputType, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "output_dtype", kOutputType, f.output_dtype);
}

template <DType kInputType, DType kOutputType, Backend kBackend>
constexpr Kernel kernel(decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind) {
  return {.op = "activation",
          .body = "elements",
          .dtypes = kDTypes<kInputType, kOutputType>,
          .revision = 1,
          .backend = kBackend,
          .arch = kBackend == Backend::Host ? ArchRange{} : ArchRange{80, kLastArch},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kInputType, kOutputType>,
          .workspace = no_workspace,
          .prepare = prepare,
          .bind = bind};
}

}  // namespace planq::activation
