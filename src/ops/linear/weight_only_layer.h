// What the descriptors of linear layers of floating activations and coded weights share. They have
// linear_4bit's fields and operands, under the same names.
#pragma once

#include <string>

#include "core/scope.h"
#include "ops/affine/checks.h"
#include "ops/linear/checks.h"
#include "ops/linear/weight_only/codes.h"
#include "ops/packing/fragment_order.h"
#include "ops/packing/mixed_dtype_layout.h"

namespace planq::linear {

// Checks the types, and fills in output_dtype and weight_dtype.
template <class Fields>
Fault coded_dtypes(Fields& f, std::span<const DType> codes) {
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kSumOutputs); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("code_dtype", f.code_dtype, codes); !fault.ok()) return fault;
  if (f.weight_dtype == DType::Unset) f.weight_dtype = f.input_dtype;
  if (Fault fault = checks::dtype("weight_dtype", f.weight_dtype, checks::kSumOutputs); !fault.ok())
    return fault;
  if (f.output_dtype == DType::Unset) f.output_dtype = f.input_dtype;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kSumOutputs); !fault.ok())
    return fault;
  return checks::addends(f.bias_dtype, f.residual_dtype);
}

// Checks accumulation, or fills it in. Tensor cores multiply numbers of one 16-bit type.
template <class Fields>
Fault coded_accumulation(Fields& f) {
  const bool multiplies = f.input_dtype == f.weight_dtype && f.input_dtype != DType::Float32;
  if (f.accumulation == Accumulation::Unset)
    f.accumulation = multiplies ? Accumulation::TensorSm90 : Accumulation::Lanes;
  if (f.accumulation == Accumulation::Lanes) return {};
  const std::string name(name_of(f.accumulation));
  if (f.accumulation != Accumulation::TensorSm90)
    return {"accumulation", "expected lanes or tensor_sm90, got " + name};
  if (multiplies) return {};
  return {"accumulation",
          "expected lanes, since tensor_sm90 multiplies float16 or bfloat16 on "
          "both sides, got " +
              std::string(name_of(f.input_dtype)) + " and " + std::string(name_of(f.weight_dtype))};
}

template <class Fields>
Fault coded_shapes(const Fields& f) {
  if (Fault fault = checks::layer_weight(f.weight_shape); !fault.ok()) return fault;
  return checks::gemm_shapes(f.input(), f.weight());
}

// What layouts in tiles need. `usual`: the default of nibble_order.
template <class Fields>
Fault coded_layout(const Fields& f, NibbleOrder usual) {
  if (f.weight_layout == WeightLayout::RowMajor) return {};
  const std::string name(name_of(f.weight_layout));
  if (f.nibble_order != usual)
    return {"nibble_order", "weight_layout " + name + " has an order of its own; leave it out"};
  if (f.weight_layout == WeightLayout::Packed) {
    if (is_four_bit(f.code_dtype))
      return checks::shape("weight_shape", FragmentOrder::tiles(f.weight_shape), 3);
    return {"weight_layout",
            "packed is for codes of 4 bits, got " + std::string(name_of(f.code_dtype))};
  }
  if (is_unsigned(f.code_dtype))
    return {"weight_layout",
            "reordered is for signed codes, got " + std::string(name_of(f.code_dtype))};
  if (f.weight_shape[0] % mixed_dtype::kChunk == 0 && f.weight_shape[1] % mixed_dtype::kChunk == 0)
    return {};
  return {"weight_shape", "weight_layout reordered needs multiples of 64, got " +
                              shape_text(f.weight_shape.dims.data(), f.weight_shape.rank)};
}

// weight_scope: groups of a row's terms. The last group may be shorter.
template <class Fields>
Fault coded_groups(Fields& f) {
  Scope& scope = f.weight_scope;
  if (Fault fault = checks::scope(scope, f.weight_shape); !fault.ok())
    return {"weight_scope", fault.text};
  if (scope.kind == ScopeKind::Group && scope.axis == 1) return {};
  return {"weight_scope", "expected groups along the last axis, got " +
                              std::string(name_of(scope.kind)) +
                              (scope.kind == ScopeKind::Group ? "s of the other" : "")};
}

// The codes of an operand, without codebook, statistics, scales and zero points.
template <class Fields>
WeightCodes stored_codes(const Fields& f, const OperandView& weight) {
  WeightCodes codes;
  codes.data = static_cast<const std::uint8_t*>(weight.data);
  codes.dtype = f.code_dtype;
  codes.values = f.weight_dtype;
  codes.nibble_order = f.nibble_order;
  codes.layout = f.weight_layout;
  const bool pairs = is_four_bit(f.code_dtype) && f.weight_layout == WeightLayout::RowMajor;
  codes.row_stride = weight.strides[0] * (pairs ? 2 : 1);
  codes.rows = f.weight_shape[0];
  codes.terms = f.weight_shape[1];
  return codes;
}

// The same with the scales and zero points of groups. The scales of channels are the epilogue's.
template <class Fields>
WeightCodes integer_codes(const Fields& f, const OperandView& weight, const OperandView& scale,
                          const OperandView& zero_point) {
  WeightCodes codes = stored_codes(f, weight);
  if (f.weight_scope.kind != ScopeKind::Group) return codes;
  codes.segment_size = f.weight_scope.size;
  codes.scale = static_cast<const float*>(scale.data);
  codes.scale_row = scale.strides[0];
  if (f.weight_mode == Mode::Asymmetric) {
    codes.zero_point = static_cast<const std::int32_t*>(zero_point.data);
    codes.zero_point_row = zero_point.strides[0];
  }
  return codes;
}

}  // namespace planq::linear
