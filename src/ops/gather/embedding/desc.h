// embedding: rows of a table by index, times a number. Rows are floating, or codes of 8 or 4 bits
// with scales, which are dequantized on the way. How many indices name no row is counted.
#pragma once

#include <string_view>

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "core/scope.h"

namespace planq::embedding {

constexpr bool has_codes(DType table) { return table == DType::Int8 || table == DType::Int4; }

struct Fields {
  Shape shape;  // of the output, (..., width)
  std::int64_t table_rows = 0;
  DType table_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  DType index_dtype = DType::Int64;
  Scope scope = {ScopeKind::Token};
  DType scale_dtype = DType::Unset;
  NibbleOrder nibble_order = NibbleOrder::LowFirst;

  std::int64_t width() const { return shape.last(); }
  Shape table_shape() const { return {2, {table_rows, width()}}; }
  // Elements of a row that share a scale; 0: all of them.
  std::int64_t group() const { return scope.kind == ScopeKind::Group ? scope.size : 0; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required(),
    PLANQ_FIELD(Fields, table_rows).required(),
    PLANQ_FIELD(Fields, table_dtype).required(),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, index_dtype).from("index.dtype"),
    PLANQ_FIELD(Fields, scope),
    PLANQ_FIELD(Fields, scale_dtype).from("scale.dtype"),
    PLANQ_FIELD(Fields, nibble_order),
};

// Positions in Operands.
enum Operand : int { kTable, kIndex, kOutput, kScale, kFactor, kInvalid };
inline constexpr Rule kTableShape = axes("table_rows", last_of("shape"));
inline constexpr Rule kGroupSize({{RuleOp::Field}, "scope", ScopePart::Size});
inline constexpr Rule kScaleShape =
    when(is("scope", ScopeKind::Group), axes("table_rows", groups_of(last_of("shape"), kGroupSize)),
         "table_rows");
inline constexpr auto kOperands = operands(
    kFields, {{"table", Role::Input, "table_dtype", packed_shape(kTableShape, "table_dtype")},
              {"index", Role::Input, "index_dtype", leading("shape")},
              {"output", Role::Output, "output_dtype", "shape"},
              {"scale", Role::Input, "scale_dtype", kScaleShape, is("table_dtype", has_codes)},
              scalar("factor", Role::Input, DType::Float64).optional(),
              {"invalid", Role::Output, DType::Int64, 1}});

// All kernels promise the same.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = "element by element; one rounding for each product, and one to the output's type"};

template <DType kTableType, DType kOutputType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "table_dtype", kTableType, f.table_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "output_dtype", kOutputType, f.output_dtype);
}

}  // namespace planq::embedding
