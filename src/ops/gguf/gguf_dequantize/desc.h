// gguf_dequantize: the blocks of a tensor in a GGUF file to floats; all of them, or rows by index.
// How many indices name no row may be counted.
#pragma once

#include <cstdint>

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
  std::int64_t table_rows = 0;  // 0: there is no index
  DType index_dtype = DType::Unset;

  bool has_index() const { return table_rows > 0; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required(),
    PLANQ_FIELD(Fields, type).required(),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, table_rows).count(),
    PLANQ_FIELD(Fields, index_dtype).from("index.dtype"),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kIndex, kInvalid };
inline constexpr Rule kInputShape =
    with_axis(when(is_set("table_rows"), axes("table_rows", last_of("shape")), "shape"), -1,
              gguf::bytes_of_row("shape"));
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, DType::UInt8, kInputShape},
              {"output", Role::Output, "output_dtype", "shape"},
              {"index", Role::Input, "index_dtype", leading("shape"), is_set("table_rows")},
              tensor("invalid", Role::Output, DType::Int64, 1, is_set("table_rows")).optional()});

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
