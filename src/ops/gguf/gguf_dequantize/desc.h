// gguf_dequantize: the blocks of a tensor in a GGUF file to floats.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "core/sku.h"
#include "ops/gguf/operand_lines.h"

namespace planq::gguf_dequantize {

struct Fields {
  Shape shape;  // of the output
  GgufType type = GgufType::Q4_0;
  DType output_dtype = DType::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required(),
    PLANQ_FIELD(Fields, type).required(),
    PLANQ_FIELD(Fields, output_dtype).required(),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, DType::UInt8, gguf::kShapeOfBlocks},
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
        "block by block; products and a sum in float32, one rounding for each, and one to the "
        "output's type"};

template <DType kOutputType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "output_dtype", kOutputType,
                descriptor.as<Fields>().output_dtype);
}

// The kernels of all block types that write one type.
template <DType kOutputType, Backend kBackend>
constexpr Kernel kernel(decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind) {
  return {.op = "gguf_dequantize",
          .body = "blocks",
          .dtypes = kDTypes<DType::UInt8, kOutputType>,
          .revision = 1,
          .backend = kBackend,
          .arch = kBackend == Backend::Host ? ArchRange{} : ArchRange{80, kLastArch},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kOutputType>,
          .workspace = no_workspace,
          .prepare = prepare,
          .bind = bind};
}

}  // namespace planq::gguf_dequantize
