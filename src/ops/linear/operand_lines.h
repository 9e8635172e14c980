// What the operand tables of several linear operators share. Rules name the operators' fields.
#pragma once

#include <array>

#include "core/operands.h"
#include "core/scope.h"
#include "ops/linear/vocabulary.h"
#include "ops/packing/fragment_order.h"

namespace planq::linear {

// --- Batches of gemms: (..., m, k) and (..., n, k), or transposed --------------------------------

constexpr Rule gemm_columns() { return axis_of("weight_shape", when("transpose_weight", -1, -2)); }
constexpr Rule gemm_output() {
  return axes(broadcast(leading("input_shape", 2), leading("weight_shape", 2)),
              axis_of("input_shape", when("transpose_input", -1, -2)), gemm_columns());
}

// --- Layers: (..., m, k) and (n, k) --------------------------------------------------------------

constexpr Rule layer_columns() { return axis_of("weight_shape", 0); }
constexpr Rule layer_output() { return axes(leading("input_shape"), layer_columns()); }

constexpr OperandLine bias_line() {
  return {"bias", Role::Input, "bias_dtype", layer_columns(), is_set("bias_dtype")};
}
constexpr OperandLine residual_line() {
  return {"residual", Role::Input, "residual_dtype", layer_output(), is_set("residual_dtype")};
}

// Of codes, in the order of LayerOperand.
constexpr std::array<OperandLine, 11> layer_lines() {
  const Rule by_row = parameter_shape("input_shape", "input_scope");
  const Rule by_column = parameter_shape("weight_shape", "weight_scope");
  const Rule input_shifts = is("input_mode", Mode::Asymmetric);
  const Rule weight_shifts = is("weight_mode", Mode::Asymmetric);
  return {{
      {"input", Role::Input, "input_dtype", packed_shape("input_shape", "input_dtype")},
      {"weight", Role::Input, "weight_dtype", packed_shape("weight_shape", "weight_dtype")},
      {"output", Role::Output, "output_dtype", layer_output()},
      {"input_scale", Role::Input, "scale_dtype", by_row},
      {"weight_scale", Role::Input, "scale_dtype", by_column},
      {"input_zero_point", Role::Input, DType::Int32, by_row, input_shifts},
      {"weight_zero_point", Role::Input, DType::Int32, by_column, weight_shifts},
      {"input_sum", Role::Input, DType::Int32, leading("input_shape"), weight_shifts},
      {"weight_sum", Role::Input, DType::Int32, layer_columns(), input_shifts},
      bias_line(),
      residual_line(),
  }};
}

// Weights that are codes, in any layout; `row_major`: their shape in that one.
constexpr OperandLine coded_weight(const Rule& row_major) {
  const Rule turned = axes(axis_of("weight_shape", 1), axis_of("weight_shape", 0));
  return {"weight", Role::Input,
          when(is("weight_layout", WeightLayout::RowMajor), "code_dtype", DType::UInt8),
          when(is("weight_layout", WeightLayout::Reordered), packed_shape(turned, "code_dtype"),
               when(is("weight_layout", WeightLayout::Packed), FragmentOrder::shape("weight_shape"),
                    row_major))};
}

}  // namespace planq::linear
