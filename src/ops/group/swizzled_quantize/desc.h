// swizzled_quantize: codes of flat groups in the order in which a hierarchical all-to-all sends
// them. The arithmetic is in ops/group/arithmetic.h, the order in ops/group/group.h.
#pragma once

#include "core/registry.h"
#include "ops/group/group.h"

namespace planq::swizzled_quantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  std::int64_t group_size = 0;
  std::int64_t nodes = 0;
  std::int64_t devices_per_node = 0;
  std::int64_t pipelining = 1;
  Mode mode = Mode::Symmetric;
  double error_feedback = kUnsetBound;
  DType error_dtype = DType::Float32;
  DType sum_dtype = DType::Float32;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, group_size).required(),
    PLANQ_FIELD(Fields, nodes).required(),
    PLANQ_FIELD(Fields, devices_per_node).required(),
    PLANQ_FIELD(Fields, pipelining),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, error_feedback),
    PLANQ_FIELD(Fields, error_dtype).from("error.dtype"),
    PLANQ_FIELD(Fields, sum_dtype),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kParameters, kError };
inline constexpr auto kOperands = operands(
    kFields,
    {{"input", Role::Input, "input_dtype", "shape"},
     {"output", Role::Output, "output_dtype", flat_codes_shape("shape", "output_dtype")},
     {"parameters", Role::Output, DType::Float32,
      axes(groups_of(elements_of("shape"), "group_size"), parameter_columns())},
     {"error", Role::InOut, "error_dtype", elements_of("shape"), is_set("error_feedback")}});

inline Grouping grouping_of(const Fields& f) {
  return {f.shape, f.group_size, f.mode, Convention::DeepSpeed, f.output_dtype};
}
inline std::int64_t runs_of(const Fields& f) { return f.nodes * f.devices_per_node * f.pipelining; }
inline GroupEncoding encoding_of(const Fields& f) {
  const Grouping grouping = grouping_of(f);
  const GroupOrder order{f.pipelining, f.nodes, f.devices_per_node, grouping.groups / runs_of(f)};
  return {grouping, Shape{1, {grouping.elements}}, order};
}

}  // namespace planq::swizzled_quantize
