// dequantize_reduce: the sum of the codes that several ranks sent, as codes again or as elements.
// The arithmetic is in ops/group/arithmetic.h.
#pragma once

#include "core/registry.h"
#include "ops/group/group.h"

namespace planq::dequantize_reduce {

inline constexpr std::int64_t kMostRanks = 64;

struct Fields {
  Shape shape;
  std::int64_t ranks = 0;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  std::int64_t group_size = 0;
  std::int64_t output_group_size = 0;
  Mode mode = Mode::Symmetric;
  bool mean = false;
  DType sum_dtype = DType::Float32;
  double error_feedback = kUnsetBound;
  DType error_dtype = DType::Float32;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required(),
    PLANQ_FIELD(Fields, ranks).required(),
    PLANQ_FIELD(Fields, input_dtype).required(),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, group_size).required(),
    PLANQ_FIELD(Fields, output_group_size).count(),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, mean),
    PLANQ_FIELD(Fields, sum_dtype),
    PLANQ_FIELD(Fields, error_feedback),
    PLANQ_FIELD(Fields, error_dtype).from("error.dtype"),
};

// Positions in Operands.
enum Operand : int { kInput, kParameters, kOutput, kOutputParameters, kError };
inline constexpr auto kOperands = operands(
    kFields,
    {{"input", Role::Input, "input_dtype", axes("ranks", flat_codes_shape("shape", "input_dtype"))},
     {"parameters", Role::Input, DType::Float32,
      axes("ranks", groups_of(elements_of("shape"), "group_size"), parameter_columns())},
     {"output", Role::Output, "output_dtype", codes_shape("shape", "output_dtype")},
     {"output_parameters", Role::Output, DType::Float32,
      axes(groups_of(elements_of("shape"), "output_group_size"), parameter_columns()),
      equal("output_dtype", "input_dtype")},
     {"error", Role::InOut, "error_dtype", elements_of("shape"), is_set("error_feedback")}});

inline bool makes_codes(const Fields& f) { return f.output_dtype == f.input_dtype; }
inline bool sums_halves(const Fields& f) { return f.sum_dtype == DType::Float16; }

inline Grouping input_groups(const Fields& f) {
  return {f.shape, f.group_size, f.mode, Convention::DeepSpeed, f.input_dtype};
}
// Of sums that become codes.
inline Grouping output_groups(const Fields& f) {
  return {f.shape, f.output_group_size, f.mode, Convention::DeepSpeed, f.output_dtype};
}

}  // namespace planq::dequantize_reduce
