// Static affine codes: quantize, dequantize and their straight-through gradients with a scale and a
// zero point that are given. Scalar functions that both backends call; docs/numerics/affine.md has
// the formulas.
#pragma once

#include "math/philox.h"
#include "ops/affine/scale.h"

namespace planq::math {

// A given scale in the compute type: one rounding where that is the narrower one.
template <class C>
PLANQ_HD C load_scale(const void* scales, std::int64_t index, DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return static_cast<C>(widen(static_cast<const Half*>(scales)[index]));
    case DType::BFloat16:
      return static_cast<C>(widen(static_cast<const Bfloat16*>(scales)[index]));
    case DType::Float32:
      return static_cast<C>(static_cast<const float*>(scales)[index]);
    default:
      return static_cast<C>(static_cast<const double*>(scales)[index]);
  }
}

// Code `index` of a span of 4-bit codes, as an integer.
PLANQ_HD std::int32_t nibble_at(const std::uint8_t* bytes, std::int64_t index, NibbleOrder order,
                                bool is_signed) {
  const bool high = (index & 1) == (order == NibbleOrder::LowFirst ? 1 : 0);
  const std::int32_t nibble = (bytes[index >> 1] >> (high ? 4 : 0)) & 0xF;
  return is_signed && nibble > 7 ? nibble - 16 : nibble;
}

// The integer at `index` of zero points or codes of this type; of 4-bit types, the code.
PLANQ_HD std::int32_t load_integer(const void* from, std::int64_t index, DType dtype,
                                   NibbleOrder order) {
  switch (dtype) {
    case DType::Int8:
      return static_cast<const std::int8_t*>(from)[index];
    case DType::UInt8:
      return static_cast<const std::uint8_t*>(from)[index];
    case DType::Int4:
    case DType::UInt4:
      return nibble_at(static_cast<const std::uint8_t*>(from), index, order, dtype == DType::Int4);
    default:
      return static_cast<const std::int32_t*>(from)[index];
  }
}

// What an element needs, from a scale and a zero point that are given. RATIO multiplies with the
// ratio that belongs to the range which the scale spans.
template <class C>
PLANQ_HD SegmentParameters<C> given_parameters(const AffineSpec<C>& spec, C scale,
                                               std::int32_t zero_point) {
  const C inverse =
      spec.quotient == Quotient::Ratio ? spec.q_max / (scale * spec.q_max) : C{1} / scale;
  return {scale, inverse, zero_point, false};
}

// The code of an element under given parameters. fp8 has a NaN of its own to propagate.
template <class C>
PLANQ_HD std::uint8_t given_code(C x, const AffineSpec<C>& spec,
                                 const SegmentParameters<C>& segment) {
  const bool fp8 = is_fp8(spec.output_dtype);
  if (fp8 && spec.nonfinite == NonFinite::Propagate &&
      is_nan(quotient_of(x, segment, spec.quotient)))
    return 0x7F;
  return code_of(x, spec, segment);
}

// fl(scale * fl(code - zero_point)); the difference is exact.
template <class C>
PLANQ_HD C dequantized(std::int32_t code, C scale, std::int32_t zero_point) {
  return scale * static_cast<C>(static_cast<std::int64_t>(code) - zero_point);
}

// Decodes an fp8 code exactly; every NaN code is a NaN.
template <class C>
PLANQ_HD C float8_value(std::uint8_t code, DType dtype) {
  const std::uint32_t magnitude = code & 0x7Fu;
  const bool e4m3 = dtype == DType::Float8E4M3FN;
  if (e4m3 ? magnitude == 0x7F : magnitude > 0x7C) return canonical_nan<C>();
  float value;
  if (!e4m3 && magnitude == 0x7C) {
    value = bit_cast<float>(Ieee<float>::kInfinity);
  } else {
    // The fields of the code as those of a float, and the difference of the exponent biases.
    value = e4m3 ? bit_cast<float>(magnitude << 20) * 0x1p120f
                 : bit_cast<float>(magnitude << 21) * 0x1p112f;
  }
  return static_cast<C>(code & 0x80u ? -value : value);
}

// The code of an element before it is stored: clamp(rne(t) + z), or clamp(floor(t + u) + z) with a
// random number u in [0, 1) of stochastic rounding.
template <class C>
PLANQ_HD std::int32_t rounded_code(C x, const AffineSpec<C>& spec,
                                   const SegmentParameters<C>& segment, bool stochastic,
                                   C uniform) {
  C quotient = quotient_of(x, segment, spec.quotient);
  if (stochastic) quotient = floor_of(quotient + uniform);
  return integer_code(quotient, segment.zero_point, spec.q_low, spec.q_high);
}

// dequantize(quantize(x)). A NaN that is to propagate stays one, and so does a poisoned segment.
template <class C>
PLANQ_HD C fake_quantized(C x, const AffineSpec<C>& spec, const SegmentParameters<C>& segment,
                          bool stochastic, C uniform) {
  const bool lost = spec.nonfinite == NonFinite::Propagate && is_nan(x);
  if (lost || segment.poisoned) return canonical_nan<C>();
  return dequantized(rounded_code(x, spec, segment, stochastic, uniform), segment.scale,
                     segment.zero_point);
}

// Whether the gradient of an element passes: its code before clamping lies inside the bounds, both
// included. The sum is exact. fp8 compares the quotient itself.
template <class C>
PLANQ_HD bool passes(C x, const AffineSpec<C>& spec, const SegmentParameters<C>& segment) {
  const C quotient = quotient_of(x, segment, spec.quotient);
  if (!is_finite(quotient)) return false;
  if (is_fp8(spec.output_dtype)) return quotient >= spec.q_min && quotient <= spec.q_max;
  // From 2^33 on no zero point brings a code back.
  const C limit = static_cast<C>(std::int64_t{1} << 33);
  const std::int64_t code =
      static_cast<std::int64_t>(clamp(rne(quotient), -limit, limit)) + segment.zero_point;
  return code >= spec.q_low && code <= spec.q_high;
}

}  // namespace planq::math
