// gguf_quantize: floats to the blocks of a tensor in a GGUF file.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "core/sku.h"
#include "ops/gguf/operand_lines.h"

namespace planq::gguf_quantize {

struct Fields {
  Shape shape;  // of the input
  DType input_dtype = DType::Unset;
  GgufType type = GgufType::Q4_0;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, type).required(),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "shape"},
                       {"output", Role::Output, DType::UInt8, gguf::kShapeOfBlocks}});

// All kernels promise the same.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = "block by block; each step of docs/numerics is one rounding in float32, in its order"};

template <DType kInputType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kInputType, descriptor.as<Fields>().input_dtype);
}

// The kernels of all block types that read one type.
template <DType kInputType, Backend kBackend>
constexpr Kernel kernel(decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind) {
  return {.op = "gguf_quantize",
          .body = "blocks",
          .dtypes = kDTypes<kInputType, DType::UInt8>,
          .revision = 1,
          .backend = kBackend,
          .arch = kBackend == Backend::Host ? ArchRange{} : ArchRange{80, kLastArch},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kInputType>,
          .workspace = no_workspace,
          .prepare = prepare,
          .bind = bind};
}

}  // namespace planq::gguf_quantize
