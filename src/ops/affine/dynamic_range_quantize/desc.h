// dynamic_range_quantize: measure the range of every segment, derive scale and zero point, and
// quantize, in one operation. This header is the operator's contract: its fields, its operands and
// what a descriptor may say. The arithmetic is in affine/scale.h.
#pragma once

#include "core/index_space.h"
#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "core/scope.h"
#include "ops/affine/microscaling.h"
#include "ops/affine/scale.h"

namespace planq::dynamic_range_quantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  Scope scope = {ScopeKind::Token};
  Mode mode = Mode::Symmetric;
  double q_min = kUnsetBound;
  double q_max = kUnsetBound;
  DType scale_dtype = DType::Unset;
  Quotient quotient = Quotient::Divide;
  NonFinite nonfinite = NonFinite::Propagate;
  bool include_zero = true;
  NibbleOrder nibble_order = NibbleOrder::LowFirst;
  Convention convention = Convention::Planq;
  double scale_ub = kUnsetBound;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, scope),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, q_min),
    PLANQ_FIELD(Fields, q_max),
    PLANQ_FIELD(Fields, scale_dtype),
    PLANQ_FIELD(Fields, quotient),
    PLANQ_FIELD(Fields, nonfinite),
    PLANQ_FIELD(Fields, include_zero),
    PLANQ_FIELD(Fields, nibble_order),
    PLANQ_FIELD(Fields, convention),
    PLANQ_FIELD(Fields, scale_ub),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kScale, kZeroPoint, kInverseTensorScale };
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", "shape"},
              {"output", Role::Output, "output_dtype", packed_shape("shape", "output_dtype")},
              {"scale", Role::Output, "scale_dtype", parameter_shape("shape", "scope")},
              {"zero_point", Role::Output, DType::Int32, parameter_shape("shape", "scope"),
               is("mode", Mode::Asymmetric)},
              {"inverse_tensor_scale", Role::Input, DType::Float32, 1,
               is("convention", Convention::Nvfp4)}});

inline Shape parameter_shape(const Fields& fields) {
  return planq::parameter_shape(fields.shape, fields.scope);
}

// The same descriptor with groups in the place of tiles of one row or one column.
inline Fields with_groups(Fields f) {
  f.scope = planq::with_groups(f.shape, f.scope);
  return f;
}

template <class C>
math::AffineSpec<C> spec_of(const Fields& f) {
  return math::affine_spec<C>(f.output_dtype, f.scale_dtype, f.mode, f.quotient, f.nonfinite,
                              f.include_zero, f.q_min, f.q_max, f.convention, f.scale_ub);
}

// Formats of groups have kernels of their own.
inline Reason rejects_formats(const Fields& f) {
  if (math::is_affine(f.convention)) return Reason::accept();
  return Reason::refuse(ReasonKind::Feature,
                        "computes convention planq, compressed_tensors or vllm, not ",
                        name_of(f.convention));
}

// The elements of a block of GGML.
inline constexpr std::int64_t kGgmlBlock = 32;

// What GGML's kernels of both backends promise.
template <DType kOutput>
constexpr Guarantee ggml_guarantee() {
  constexpr bool kByte = kOutput == DType::Int8;
  return {.determinism = Determinism::BitExact,
          .math = MathPrecision::F32,
          .accumulator = DType::Float32,
          .rounding = kByte ? Rounding::NearestAway : Rounding::NearestUp,
          .max_ulp = 0,
          .error_bound = kNoErrorBound,
          .batch_invariant = true,
          .basis = std::string_view("exact maximum of magnitudes; two IEEE divisions a block; a "
                                    "product and a sum an element; no reassociation")};
}

template <DType kInput, DType kOutput>
Reason rejects_but_ggml(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kInput, f.input_dtype);
  if (reason.accepted())
    reason = expect(ReasonKind::DType, "output_dtype", kOutput, f.output_dtype);
  if (reason.accepted())
    reason = expect(ReasonKind::Scope, "scope", ScopeKind::Group, f.scope.kind);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::Feature, "convention", Convention::Ggml, f.convention);
}

// Where the rows of a tensor in groups lie: every axis but the last.
inline IndexSpace rows_of_groups(const Fields& f, const Operands& operands) {
  IndexSpace space;
  for (int i = 0; i + 1 < f.shape.rank; ++i) {
    Axis axis;
    axis.extent = f.shape[i];
    for (const int operand : {kInput, kOutput, kScale})
      axis.stride[operand] = operands[operand].strides[i];
    space.append(axis);
  }
  return space;
}

// Where whole groups lie: the rows, and the groups of a row.
inline IndexSpace whole_groups(const Fields& f, const Operands& operands) {
  IndexSpace space = rows_of_groups(f, operands);
  Axis axis;
  axis.extent = f.shape.last() / f.scope.size;
  axis.stride[kInput] = f.scope.size;
  axis.stride[kOutput] = is_four_bit(f.output_dtype) ? f.scope.size / 2 : f.scope.size;
  axis.stride[kScale] = operands[kScale].strides[f.shape.rank - 1];
  space.append(axis);
  space.merge();
  return space;
}

}  // namespace planq::dynamic_range_quantize
