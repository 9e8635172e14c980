// vectorwise_quantize: codes and statistics of a tensor, or of vectors along an axis, as
// bitsandbytes' reference quantizers make them. The arithmetic is in outlier/vectorwise.h, the
// measuring in affine/ranges/ranges.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/affine/ranges/ranges.h"
#include "ops/outlier/vectorwise.h"
#include "ops/outlier/vocabulary.h"

namespace planq::vectorwise_quantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  VectorwiseForm form = VectorwiseForm::Vector;
  std::int64_t axis = -1;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype),
    PLANQ_FIELD(Fields, form),
    PLANQ_FIELD(Fields, axis),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kScale, kZeroPoint };
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", "shape"},
              {"output", Role::Output, "output_dtype", "shape"},
              {"scale", Role::Output, compute_dtype("input_dtype"), outlier::statistic_shape()},
              {"zero_point", Role::Output, DType::Int32, outlier::statistic_shape(),
               is("form", outlier::has_zero_point)}});

inline Scope scope_of(const Fields& f) { return outlier::scope_of(f.form, f.shape, f.axis); }

inline RangeProblem problem_of(const Fields& f) {
  const Mode mode = outlier::has_zero_point(f.form) ? Mode::Asymmetric : Mode::Symmetric;
  return {f.shape, f.input_dtype, scope_of(f), mode, NonFinite::Propagate};
}

// The high end of each segment's range is first stored in `scale`, the low end in the workspace.
inline RangeOperands ranges_of(const Fields& f, const Operands& operands, void* low) {
  RangeOperands ranges{operands[kInput], {}};
  ranges.ends[kHigh] = operands[kScale];
  if (low) ranges.ends[kLow] = contiguous_view(parameter_shape(f.shape, scope_of(f)), low);
  return ranges;
}

// The segments, in the order of the parameters.
struct Segments {
  enum End : int { kLowEnd, kScaleEnd, kZeroPointEnd };
  IndexSpace at;
  std::int64_t count = 0;

  Segments(const Fields& f, const Operands& operands) {
    const Shape shape = parameter_shape(f.shape, scope_of(f));
    const OperandView low = contiguous_view(shape);
    const bool zero_point = outlier::has_zero_point(f.form);
    for (int i = 0; i < shape.rank; ++i)
      at.append({.extent = shape[i],
                 .stride = {low.strides[i], operands[kScale].strides[i],
                            zero_point ? operands[kZeroPoint].strides[i] : 0}});
    count = shape.elements();
    at.merge();
  }
};

template <class C>
struct Statistics {
  Segments segments;
  const C* low;
  C* scale;
  std::int32_t* zero_point;
  VectorwiseForm form;

  Statistics(const Fields& f, const Operands& operands, const C* lows)
      : segments(f, operands),
        low(lows),
        scale(static_cast<C*>(operands[kScale].data)),
        zero_point(outlier::has_zero_point(f.form)
                       ? static_cast<std::int32_t*>(operands[kZeroPoint].data)
                       : nullptr),
        form(f.form) {}

  // Replaces the ends of a segment's range by its parameters, in place.
  PLANQ_HD void settle(std::int64_t segment) const {
    const Offsets offsets = segments.at.offsets(segment);
    C& own = scale[offsets.at[Segments::kScaleEnd]];
    const auto found =
        outlier::statistic_of<C>(form, low ? low[offsets.at[Segments::kLowEnd]] : C{0}, own);
    own = found.scale;
    if (zero_point) zero_point[offsets.at[Segments::kZeroPointEnd]] = found.zero_point;
  }
};

// What the kernels of both backends promise.
template <class C>
constexpr Guarantee guarantee() {
  return {.determinism = Determinism::BitExact,
          .math = sizeof(C) == 8 ? MathPrecision::F64 : MathPrecision::F32,
          .accumulator = sizeof(C) == 8 ? DType::Float64 : DType::Float32,
          .rounding = Rounding::NearestEven,
          .max_ulp = 0,
          .error_bound = kNoErrorBound,
          .batch_invariant = true,
          .basis = std::string_view("exact integer maximum of keys; one rounding for each "
                                    "product, quotient and sum")};
}

template <DType kIn, DType kOut>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  return reason.accepted() ? expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype)
                           : reason;
}

}  // namespace planq::vectorwise_quantize
