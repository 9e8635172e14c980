// fake_quantize: quantize and dequantize in one pass, with parameters that are given or those of
// the range of each segment. The arithmetic is in affine/affine.h, DeepSpeed's in group/fake.h.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "core/scratch.h"
#include "ops/affine/ranges/ranges.h"
#include "ops/affine/scale.h"

namespace planq::fake_quantize {

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  Scope scope;
  Mode mode = Mode::Symmetric;
  double q_min = kUnsetBound;
  double q_max = kUnsetBound;
  DType scale_dtype = DType::Unset;
  DType zero_point_dtype = DType::Unset;
  Quotient quotient = Quotient::Divide;
  NonFinite nonfinite = NonFinite::Propagate;
  bool include_zero = true;
  Rounding rounding = Rounding::NearestEven;
  bool dynamic = false;
  Convention convention = Convention::Planq;
  std::int64_t bits = 0;
  std::int64_t group_size = 0;
  double eps = kUnsetBound;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, scope),
    PLANQ_FIELD(Fields, mode),
    PLANQ_FIELD(Fields, q_min),
    PLANQ_FIELD(Fields, q_max),
    PLANQ_FIELD(Fields, scale_dtype).from("scale.dtype"),
    PLANQ_FIELD(Fields, zero_point_dtype).from("zero_point.dtype"),
    PLANQ_FIELD(Fields, quotient),
    PLANQ_FIELD(Fields, nonfinite),
    PLANQ_FIELD(Fields, include_zero),
    PLANQ_FIELD(Fields, rounding),
    PLANQ_FIELD(Fields, dynamic),
    PLANQ_FIELD(Fields, convention),
    PLANQ_FIELD(Fields, bits).count(),
    PLANQ_FIELD(Fields, group_size).count(),
    PLANQ_FIELD(Fields, eps),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput, kScale, kZeroPoint, kSeed, kOffset };
inline constexpr auto kOperands = operands(
    kFields, {{"input", Role::Input, "input_dtype", "shape"},
              tensor("output", Role::Output, "input_dtype", "shape").in_place_of("input"),
              // Parameters that are measured go to the caller if wanted.
              tensor("scale", when("dynamic", Role::Output, Role::Input), "scale_dtype",
                     parameter_shape("shape", "scope"), is("convention", Convention::Planq))
                  .optional("dynamic"),
              tensor("zero_point", when("dynamic", Role::Output, Role::Input), "zero_point_dtype",
                     parameter_shape("shape", "scope"),
                     is("convention", Convention::Planq) && is("mode", Mode::Asymmetric))
                  .optional("dynamic"),
              scalar("seed", Role::Input, DType::Int64, is("rounding", Rounding::Stochastic)),
              scalar("offset", Role::Input, DType::Int64, is("rounding", Rounding::Stochastic))});

template <class C>
math::AffineSpec<C> spec_of(const Fields& f) {
  return math::affine_spec<C>(DType::Int32, f.scale_dtype, f.mode, f.quotient, f.nonfinite,
                              f.include_zero, f.q_min, f.q_max);
}

// What SKUs are made of.
constexpr std::string_view variant_of(bool dynamic) { return dynamic ? "dynamic" : ""; }
constexpr std::string_view arithmetic_of(Rounding rounding) {
  return rounding == Rounding::Stochastic ? "stochastic" : "";
}
constexpr std::string_view parameters_of(bool dynamic) { return dynamic ? "dynamic" : "given"; }

// Why kernels of planq's own convention do not compute a descriptor.
template <DType kType, Rounding kRounding, bool kDynamic>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  if (f.dynamic != kDynamic)
    return Reason::refuse(ReasonKind::Feature, "computes with ", parameters_of(kDynamic),
                          " parameters, not ", parameters_of(f.dynamic));
  Reason reason = expect(ReasonKind::DType, "input_dtype", kType, f.input_dtype);
  if (reason.accepted()) reason = expect(ReasonKind::Feature, "rounding", kRounding, f.rounding);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::Feature, "convention", Convention::Planq, f.convention);
}

inline RangeProblem range_problem(const Fields& f) {
  return {f.shape, f.input_dtype, f.scope, f.mode, f.nonfinite};
}

// What a dynamic kernel keeps of each segment in the workspace, in the order of the parameters.
template <class C>
struct SegmentArrays {
  C *low, *high, *scale, *inverse;
  std::int32_t* zero_point;
  std::int64_t count;

  SegmentArrays(const Fields& f, Scratch& scratch)
      : count(parameter_shape(f.shape, f.scope).elements()) {
    const auto size = static_cast<std::size_t>(count);
    low = f.mode == Mode::Asymmetric ? scratch.take<C>(size) : nullptr;
    high = scratch.take<C>(size);
    scale = scratch.take<C>(size);
    inverse = scratch.take<C>(size);
    zero_point = scratch.take<std::int32_t>(size);
  }

  RangeOperands ranges(const Fields& f, const OperandView& input) const {
    const Shape parameters = parameter_shape(f.shape, f.scope);
    RangeOperands operands{input, {}};
    operands.ends[kLow] = contiguous_view(parameters, low);
    operands.ends[kHigh] = contiguous_view(parameters, high);
    return operands;
  }
  PLANQ_HD math::SegmentParameters<C> parameters(const math::AffineSpec<C>& spec,
                                                 std::int64_t segment) const {
    const C bottom = low ? low[segment] : C{0}, top = high[segment];
    const bool special = !(math::is_finite(bottom) && math::is_finite(top));
    return math::segment_parameters(spec, math::Range<C>{bottom, top, special});
  }
};

// Where the caller wants scale and zero point, if at all: offsets by the number of a segment.
struct Wanted {
  void* scale;
  std::int32_t* zero_point;
  IndexSpaceOf<2> at;

  Wanted(const Fields& f, const Operands& operands)
      : scale(operands[kScale].data),
        zero_point(f.mode == Mode::Asymmetric
                       ? static_cast<std::int32_t*>(operands[kZeroPoint].data)
                       : nullptr) {
    const Shape shape = parameter_shape(f.shape, f.scope);
    for (int i = 0; i < shape.rank; ++i)
      at.append({shape[i], 1, 0, {operands[kScale].strides[i], operands[kZeroPoint].strides[i]}});
    at.merge();
  }
  template <class C>
  PLANQ_HD void put(const math::SegmentParameters<C>& parameters, DType scale_dtype,
                    std::int64_t segment) const {
    if (!scale && !zero_point) return;
    const OffsetsOf<2> offsets = at.offsets(segment);
    if (scale) math::store_scale(scale, offsets.at[0], parameters.scale, scale_dtype);
    if (zero_point) zero_point[offsets.at[1]] = parameters.zero_point;
  }
};

}  // namespace planq::fake_quantize
