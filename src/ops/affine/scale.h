// From the range of a segment to its scale and zero point, and from an element to its code: the
// affine contract of docs/numerics/affine.md, as scalar functions that both backends call.
#pragma once

#include <limits>

#include "core/dtype.h"
#include "math/formats.h"
#include "math/ieee.h"

namespace planq::math {

inline constexpr std::int32_t kZeroPointLimit = 1 << 30;

// The conventions that AffineSpec knows; formats of groups have kernels of their own.
constexpr bool is_affine(Convention convention) {
  return convention == Convention::Planq || convention == Convention::CompressedTensors ||
         convention == Convention::Vllm;
}

// Everything about the arithmetic that does not depend on the data, resolved once per plan.
template <class C>
struct AffineSpec {
  C q_min, q_max;       // bounds of the code, exact in C
  C steps;              // q_max - q_min
  std::int32_t q_low;   // q_min as an integer; 0 for fp8
  std::int32_t q_high;  // q_max as an integer; 0 for fp8
  DType output_dtype;
  DType scale_dtype;
  Mode mode;
  Quotient quotient;
  NonFinite nonfinite;
  bool include_zero;
  Convention convention;  // is_affine()
  C scale_ub;             // Vllm: no larger range makes a larger scale; NaN: there is no bound
};

template <class C>
AffineSpec<C> affine_spec(DType output_dtype, DType scale_dtype, Mode mode, Quotient quotient,
                          NonFinite nonfinite, bool include_zero, double q_min, double q_max,
                          Convention convention = Convention::Planq,
                          double scale_ub = std::numeric_limits<double>::quiet_NaN()) {
  const bool fp8 = is_fp8(output_dtype);
  return {static_cast<C>(q_min),
          static_cast<C>(q_max),
          static_cast<C>(q_max - q_min),
          fp8 ? 0 : static_cast<std::int32_t>(q_min),
          fp8 ? 0 : static_cast<std::int32_t>(q_max),
          output_dtype,
          scale_dtype,
          mode,
          quotient,
          nonfinite,
          include_zero,
          convention,
          static_cast<C>(scale_ub)};
}

// Range of a segment. Symmetric: high = max|x| and low is unused. `special` says that the segment
// holds a NaN or an infinity; under SATURATE low and high are then those of the finite elements.
template <class C>
struct Range {
  C low, high;
  bool special;
};

// What an element needs to become a code.
template <class C>
struct SegmentParameters {
  C scale;    // as stored, back in C
  C inverse;  // the factor of RECIPROCAL and RATIO; fl(1 / scale) for DIVIDE
  std::int32_t zero_point;
  bool poisoned;  // PROPAGATE met a NaN or an infinity: every code is the bad-data code
};

// Rounds a computed scale to the type that stores it, inside that type's normal range, and gives
// back the value that dequantizing will see. `subnormals`: the range begins at 0.
template <class C>
PLANQ_HD C stored_scale(C scale, DType dtype, bool subnormals = false) {
  const C float_normal = subnormals ? C{0} : static_cast<C>(1.1754943508222875e-38);
  switch (dtype) {
    case DType::Float16: {
      const C lowest = subnormals ? C{0} : static_cast<C>(6.103515625e-05);
      const C bounded = clamp(scale, lowest, static_cast<C>(65504.0));
      return static_cast<C>(widen(to_half(bounded)));
    }
    case DType::BFloat16: {
      const C bounded = clamp(scale, float_normal, static_cast<C>(3.3895313892515355e38));
      return static_cast<C>(widen(to_bfloat16(bounded)));
    }
    case DType::Float32: {
      const C bounded = clamp(scale, float_normal, static_cast<C>(3.4028234663852886e38));
      return static_cast<C>(static_cast<float>(bounded));
    }
    default:  // float64 holds every C; only an overflow of C itself is left to bound
      return clamp(scale, subnormals ? C{0} : smallest_normal<C>(), largest_finite<C>());
  }
}

// Calls put() with a scale that stored_scale() made (or the canonical NaN) in the type that stores
// it, so no conversion here rounds.
template <class C, class Put>
PLANQ_HD void put_scale(C scale, DType dtype, const Put& put) {
  switch (dtype) {
    case DType::Float16:
      return put(to_half(scale));
    case DType::BFloat16:
      return put(to_bfloat16(scale));
    case DType::Float32:
      return put(is_nan(scale) ? canonical_nan<float>() : static_cast<float>(scale));
    default:
      return put(is_nan(scale) ? canonical_nan<double>() : static_cast<double>(scale));
  }
}

template <class C>
PLANQ_HD void store_scale(void* scales, std::int64_t index, C scale, DType dtype) {
  put_scale(scale, dtype,
            [&](auto stored) { static_cast<decltype(stored)*>(scales)[index] = stored; });
}

template <class C>
PLANQ_HD C at_least_normal(C scale) {
  return scale > smallest_normal<C>() ? scale : smallest_normal<C>();
}

// The scale of a segment whose largest magnitude is peak > 0, before it is stored.
template <class C>
PLANQ_HD C symmetric_step(C peak, C q_max) {
  return at_least_normal(peak / q_max);
}

// The distance from 1 to the next number of a type.
template <class C>
PLANQ_HD C epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return static_cast<C>(0x1p-10);
    case DType::BFloat16:
      return static_cast<C>(0x1p-7);
    case DType::Float32:
      return static_cast<C>(0x1p-23);
    default:
      return static_cast<C>(0x1p-52);
  }
}

// compressed-tensors: all codes from q_min to q_max span the range, subnormal scales are kept, and
// a scale that would be 0 becomes the epsilon of its type.
template <class C>
PLANQ_HD C compressed_tensors_scale(const AffineSpec<C>& spec, C peak) {
  const C scale = stored_scale(peak / (spec.steps * C{0.5}), spec.scale_dtype, true);
  return scale == C{0} ? epsilon_of<C>(spec.scale_dtype) : scale;
}

// vLLM: a range counts as scale_ub at most, and no scale is below 1 / (512 q_max).
template <class C>
PLANQ_HD C vllm_scale(const AffineSpec<C>& spec, C peak) {
  const C scale = (spec.scale_ub < peak ? spec.scale_ub : peak) / spec.q_max;
  const C least = C{1} / (spec.q_max * C{512});
  return scale > least ? scale : least;
}

template <class C>
PLANQ_HD SegmentParameters<C> symmetric_parameters(const AffineSpec<C>& spec, C peak) {
  if (spec.convention != Convention::Planq) {
    const C scale = spec.convention == Convention::Vllm ? vllm_scale(spec, peak)
                                                        : compressed_tensors_scale(spec, peak);
    return {scale, C{1} / scale, 0, false};
  }
  const C scale =
      peak == C{0} ? C{1} : stored_scale(symmetric_step(peak, spec.q_max), spec.scale_dtype);
  C inverse = C{1} / scale;
  if (spec.quotient == Quotient::Ratio) inverse = peak == C{0} ? C{1} : spec.q_max / peak;
  return {scale, inverse, 0, false};
}

// q_min - rne(low / scale) without rounding, inside the bounds that the descriptor gives it. Steps
// beyond the limit end at a bound whatever their number is, so 32 bits are enough.
template <class C>
PLANQ_HD std::int32_t zero_point_of(const AffineSpec<C>& spec, C low, C scale) {
  const C far = static_cast<C>(kZeroPointLimit + 512);
  const std::int32_t exact =
      spec.q_low - static_cast<std::int32_t>(clamp(rne(low / scale), -far, far));
  const std::int32_t bottom = spec.include_zero ? spec.q_low : -kZeroPointLimit;
  const std::int32_t top = spec.include_zero ? spec.q_high : kZeroPointLimit;
  return exact < bottom ? bottom : exact > top ? top : exact;
}

template <class C>
PLANQ_HD SegmentParameters<C> asymmetric_parameters(const AffineSpec<C>& spec, C low, C high) {
  if (spec.include_zero) {
    low = low < C{0} ? low : C{0};
    high = high > C{0} ? high : C{0};
  }
  C scale = C{1};
  if (low == high && low != C{0}) {
    // A constant segment is reproduced exactly: one step away from the zero point.
    scale = stored_scale(at_least_normal(high < C{0} ? -high : high), spec.scale_dtype);
    return {scale, C{1} / scale, spec.q_low - (high < C{0} ? -1 : 1), false};
  }
  if (low != high) {
    // The halves only keep the difference from overflowing; both ways give the same bits.
    const C width = high - low;
    const C step = is_finite(width) ? width / spec.steps
                                    : (high * C{0.5} - low * C{0.5}) / (spec.steps * C{0.5});
    scale = stored_scale(at_least_normal(step), spec.scale_dtype);
  }
  return {scale, C{1} / scale, zero_point_of(spec, low, scale), false};
}

template <class C>
PLANQ_HD SegmentParameters<C> segment_parameters(const AffineSpec<C>& spec, const Range<C>& range) {
  if (range.special && spec.nonfinite == NonFinite::Propagate)
    return {canonical_nan<C>(), canonical_nan<C>(), 0, true};
  return spec.mode == Mode::Symmetric ? symmetric_parameters(spec, range.high)
                                      : asymmetric_parameters(spec, range.low, range.high);
}

// fl(x / scale) by the rule that the descriptor chose.
template <class C>
PLANQ_HD C quotient_of(C x, const SegmentParameters<C>& segment, Quotient rule) {
  return rule == Quotient::Divide ? x / segment.scale : x * segment.inverse;
}

// clamp(rne(quotient) + zero_point): the sum is exact in 64 bits. A NaN takes the zero point, an
// infinity the bound on its side, however far away the zero point is.
template <class C>
PLANQ_HD std::int32_t integer_code(C quotient, std::int32_t zero_point, std::int32_t q_low,
                                   std::int32_t q_high) {
  const C limit = static_cast<C>(kZeroPointLimit);
  if (magnitude_bits(quotient) == Ieee<C>::kInfinity) return quotient > C{0} ? q_high : q_low;
  const std::int64_t steps =
      is_nan(quotient) ? 0 : static_cast<std::int64_t>(clamp(rne(quotient), -limit, limit));
  const std::int64_t code = steps + zero_point;
  return static_cast<std::int32_t>(code < q_low ? q_low : code > q_high ? q_high : code);
}

template <class C>
PLANQ_HD std::uint8_t fp8_code(C quotient, C q_min, C q_max, DType dtype) {
  const C bounded = clamp(is_nan(quotient) ? C{0} : quotient, q_min, q_max);
  return static_cast<std::uint8_t>(dtype == DType::Float8E4M3FN ? E4M3Codec::encode(bounded)
                                                                : E5M2Codec::encode(bounded));
}

// The code of one element as the low bits of a byte (all eight, or four for int4 and uint4).
template <class C>
PLANQ_HD std::uint8_t integer_code_of(C x, const AffineSpec<C>& spec,
                                      const SegmentParameters<C>& segment) {
  if (segment.poisoned) return 0;
  const C quotient = quotient_of(x, segment, spec.quotient);
  const std::int32_t code = integer_code(quotient, segment.zero_point, spec.q_low, spec.q_high);
  return static_cast<std::uint8_t>(code & 0xFF);
}
template <class C>
PLANQ_HD std::uint8_t float8_code_of(C x, const AffineSpec<C>& spec,
                                     const SegmentParameters<C>& segment, DType dtype) {
  if (segment.poisoned) return 0x7F;
  return fp8_code(quotient_of(x, segment, spec.quotient), spec.q_min, spec.q_max, dtype);
}
template <class C>
PLANQ_HD std::uint8_t code_of(C x, const AffineSpec<C>& spec, const SegmentParameters<C>& segment) {
  const bool fp8 =
      spec.output_dtype == DType::Float8E4M3FN || spec.output_dtype == DType::Float8E5M2;
  return fp8 ? float8_code_of(x, spec, segment, spec.output_dtype)
             : integer_code_of(x, spec, segment);
}

// Two 4-bit codes in a byte; `first` is the element with the smaller index.
PLANQ_HD std::uint8_t pack_nibbles(std::uint8_t first, std::uint8_t second, NibbleOrder order) {
  const std::uint32_t low = order == NibbleOrder::LowFirst ? first : second;
  const std::uint32_t high = order == NibbleOrder::LowFirst ? second : first;
  return static_cast<std::uint8_t>((low & 0xFu) | (high & 0xFu) << 4);
}

}  // namespace planq::math
