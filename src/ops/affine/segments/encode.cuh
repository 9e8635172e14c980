// From vectors of elements to words of codes, for segments whose numbers are ordinary. The results
// are those of math::code_of for every element; is_fast() says for which segments that holds, and
// the others take math::code_of itself.
#pragma once

#include "cuda/codes.cuh"
#include "ops/affine/scale.h"

namespace planq::affine {

using cuda::add_element;
using cuda::Bounds;
using cuda::by_rule;
using cuda::Codes;
using cuda::codes_of;
using cuda::Collector;
using cuda::element_of;
using cuda::finish;
using cuda::inverse_of;
using cuda::is_float8;
using cuda::is_special;
using cuda::key_of;
using cuda::KeyOf;
using cuda::KeyRange;
using cuda::kInfinityKey;
using cuda::kLargeQuotient;
using cuda::kLargeScale;
using cuda::kLargeZeroPoint;
using cuda::kPerByte;
using cuda::kPerVector;
using cuda::kRoundedBits;
using cuda::kSmallScale;
using cuda::kWordBytes;
using cuda::quotient;
using cuda::rounded;
using cuda::signs_of_halves;
using cuda::subwarp_key_range;
using cuda::value_of;
using cuda::warp_key_range;
using math::Bfloat16;
using math::Compute;
using math::Half;

// `special` here is what the caller saw; `key_range` holds finite elements or, under PROPAGATE,
// all.
template <class In>
__device__ __forceinline__ math::Range<Compute<In>> range_of(const KeyRange<In>& key_range,
                                                             bool symmetric, bool special) {
  using C = Compute<In>;
  if (symmetric) return {C{0}, key_range.high < 0 ? C{0} : value_of<In>(key_range.high), special};
  if (key_range.low > key_range.high) return {C{0}, C{0}, special};
  return {value_of<In>(key_range.low), value_of<In>(key_range.high), special};
}

// math::code_of in a kernel that knows the kind of its codes, without what the others need.
template <Codes kCodes, class C>
__device__ __forceinline__ std::uint8_t code_of(C x, const math::AffineSpec<C>& spec,
                                                const math::SegmentParameters<C>& segment) {
  if constexpr (kCodes == Codes::E4M3)
    return math::float8_code_of(x, spec, segment, DType::Float8E4M3FN);
  else if constexpr (kCodes == Codes::E5M2)
    return math::float8_code_of(x, spec, segment, DType::Float8E5M2);
  else
    return math::integer_code_of(x, spec, segment);
}

// Whether encode() below gives the codes of a segment with this range, whose elements all are
// finite.
template <class C>
__device__ __forceinline__ bool is_fast(const math::AffineSpec<C>& spec,
                                        const math::SegmentParameters<C>& segment,
                                        const math::Range<C>& range) {
  const C below = range.low < C{0} ? -range.low : range.low;
  const C above = range.high < C{0} ? -range.high : range.high;
  const C peak = below > above ? below : above;
  const bool window = spec.quotient != Quotient::Divide ||
                      (segment.scale >= kSmallScale<C> && segment.scale <= kLargeScale<C>);
  const bool bounds = !is_fp8(spec.output_dtype) || spec.q_min < C{0};
  return window && bounds && !range.special && peak * segment.inverse <= kLargeQuotient<C> &&
         segment.zero_point <= kLargeZeroPoint && segment.zero_point >= -kLargeZeroPoint;
}

// A segment's numbers as the loop over its elements wants them.
template <class C>
struct Numbers {
  C scale, inverse;
  C low, high;  // bounds of the quotient, for Bounds::Clamp
  std::int32_t zero_point;
  std::int32_t signed_offset;  // from a rounded quotient to what pack_saturated() takes

  __device__ __forceinline__ Numbers(C scale, C inverse, std::int32_t zero_point,
                                     const math::AffineSpec<C>& spec)
      : scale(scale), inverse(inverse), zero_point(zero_point) {
    const C zero = static_cast<C>(zero_point);
    low = spec.q_min - zero;
    high = spec.q_max - zero;
    signed_offset = zero_point - half_range(spec);
  }
  __device__ __forceinline__ Numbers(const math::SegmentParameters<C>& segment,
                                     const math::AffineSpec<C>& spec)
      : Numbers(segment.scale, segment.inverse, segment.zero_point, spec) {}

  // How far the codes of an unsigned type lie above those of the signed one.
  __device__ __forceinline__ static std::int32_t half_range(const math::AffineSpec<C>& spec) {
    return spec.q_low == 0 ? (spec.q_high + 1) / 2 : 0;
  }
};

// The code of clamp(rne(quotient) + zero_point) in the low byte, other bits being arbitrary;
// Bounds::Saturate: the sum that pack_saturated() takes. Clamping to integers commutes with
// rounding, and the sums after that are exact.
template <bool kAsymmetric, Bounds kBounds>
__device__ __forceinline__ std::uint32_t integer_code(float quotient, const Numbers<float>& n,
                                                      const math::AffineSpec<float>&) {
  if constexpr (kBounds == Bounds::Clamp) quotient = fminf(fmaxf(quotient, n.low), n.high);
  const std::uint32_t bits = rounded(quotient);
  if constexpr (kBounds == Bounds::Saturate)
    return bits + (static_cast<std::uint32_t>(n.signed_offset) - kRoundedBits);
  return kAsymmetric ? bits + static_cast<std::uint32_t>(n.zero_point) : bits;
}
template <bool kAsymmetric, Bounds kBounds>
__device__ __forceinline__ std::uint32_t integer_code(double quotient, const Numbers<double>& n,
                                                      const math::AffineSpec<double>& spec) {
  std::int32_t code = rounded(quotient);
  if constexpr (kBounds == Bounds::Saturate)
    return static_cast<std::uint32_t>(code + n.signed_offset);
  if constexpr (kAsymmetric) code += n.zero_point;
  if constexpr (kBounds == Bounds::Clamp) code = min(max(code, spec.q_low), spec.q_high);
  return static_cast<std::uint32_t>(code);
}

template <bool kDivide, Bounds kBounds, class C>
__device__ __forceinline__ float float8_value(C quotient, C x, const math::AffineSpec<C>& spec) {
  float value = cuda::as_float(quotient);
  if constexpr (kBounds == Bounds::Clamp)
    value = fminf(fmaxf(value, static_cast<float>(spec.q_min)), static_cast<float>(spec.q_max));
  if constexpr (!kDivide) return value;
  // The corrections of the quotient lose the sign of a zero: the magnitude is the value's, the sign
  // that of x. The compiler makes two instructions of what is one.
  const std::uint32_t sign =
      sizeof(C) == 4 ? __float_as_uint(static_cast<float>(x))
                     : static_cast<std::uint32_t>(__double2hiint(static_cast<double>(x)));
  const std::uint32_t bits = cuda::bits_of_both(__float_as_uint(value), sign, 0x7FFFFFFFu);
  return __uint_as_float(bits);
}

// The quotient and the value by a rule that may be known only at run.
template <class Divides, class C>
__device__ __forceinline__ C quotient_by(Divides divides, C x, C scale, C inverse) {
  return divides ? quotient<true>(x, scale, inverse) : quotient<false>(x, scale, inverse);
}
template <Bounds kBounds, class Divides, class C>
__device__ __forceinline__ float float8_value_by(Divides divides, C quotient, C x,
                                                 const math::AffineSpec<C>& spec) {
  return divides ? float8_value<true, kBounds>(quotient, x, spec)
                 : float8_value<false, kBounds>(quotient, x, spec);
}

// The bits of one element's code, as finish() takes them.
template <Codes kCodes, bool kAsymmetric, bool kDivide, Bounds kBounds, class C>
__device__ __forceinline__ std::uint32_t code_bits(C x, const Numbers<C>& numbers,
                                                   const math::AffineSpec<C>& spec) {
  const C q = quotient<kDivide>(x, numbers.scale, numbers.inverse);
  if constexpr (is_float8(kCodes))
    return __float_as_uint(float8_value<kDivide, kBounds>(q, x, spec));
  else
    return integer_code<kAsymmetric, kBounds>(q, numbers, spec);
}

template <class In, Codes kCodes, bool kAsymmetric, bool kDivide, Bounds kBounds>
__device__ __forceinline__ cuda::Word<kWordBytes<In, kCodes>> encode(
    const uint4& v, const Numbers<Compute<In>>& numbers, const math::AffineSpec<Compute<In>>& spec,
    NibbleOrder order) {
  std::uint32_t codes[kPerVector<In>];
#pragma unroll
  for (int i = 0; i < kPerVector<In>; ++i)
    codes[i] =
        code_bits<kCodes, kAsymmetric, kDivide, kBounds>(element_of<In>(v, i), numbers, spec);
  return finish<kCodes, kBounds>(codes, spec.output_dtype, order);
}

// encode() in one copy for both rules and all bounds, for kernels that are not worth two.
template <class In, Codes kCodes>
__device__ __forceinline__ cuda::Word<kWordBytes<In, kCodes>> encode_by_any_rule(
    const uint4& v, const Numbers<Compute<In>>& numbers, const math::AffineSpec<Compute<In>>& spec,
    NibbleOrder order) {
  using C = Compute<In>;
  const bool divides = spec.quotient == Quotient::Divide;
  std::uint32_t codes[kPerVector<In>];
#pragma unroll
  for (int i = 0; i < kPerVector<In>; ++i) {
    const C x = element_of<In>(v, i);
    const C q = quotient_by(divides, x, numbers.scale, numbers.inverse);
    if constexpr (is_float8(kCodes))
      codes[i] = __float_as_uint(float8_value_by<Bounds::Clamp>(divides, q, x, spec));
    else
      codes[i] = integer_code<true, Bounds::Clamp>(q, numbers, spec);
  }
  return finish<kCodes, Bounds::Clamp>(codes, spec.output_dtype, order);
}

// Moves every element of an array down by one. A loop that works on the first element and then
// calls this is one copy of its body, and the array still stays in registers.
template <class T, int kCount>
__device__ __forceinline__ void move_down(T (&array)[kCount]) {
#pragma unroll
  for (int i = 0; i + 1 < kCount; ++i) array[i] = array[i + 1];
}

// The code of one element of a whole byte.
template <Codes kCodes, bool kAsymmetric, bool kDivide, Bounds kBounds, class C>
__device__ __forceinline__ std::uint8_t encode_single(C x, const Numbers<C>& numbers,
                                                      const math::AffineSpec<C>& spec,
                                                      NibbleOrder order) {
  const std::uint32_t bits = code_bits<kCodes, kAsymmetric, kDivide, kBounds>(x, numbers, spec);
  const std::uint32_t twice[2] = {bits, bits};
  return static_cast<std::uint8_t>(finish<kCodes, kBounds>(twice, spec.output_dtype, order));
}

template <Bounds kBounds>
using BoundsConstant = std::integral_constant<Bounds, kBounds>;

// Specialized: DIVIDE, scales stored as they are computed, codes that need no comparison with
// bounds. It has instantiations of its own where time is short, so that a small launch, which waits
// for every instruction that it fetches, fetches few.
enum class Variant { Specialized, Generic };

// What a kernel knows of its spec, as constants: code that is made for one spec is shorter.
template <Variant kVariant, bool kAsymmetric, class C>
__device__ __forceinline__ math::AffineSpec<C> known_spec(const math::AffineSpec<C>& given) {
  math::AffineSpec<C> spec = given;
  spec.mode = kAsymmetric ? Mode::Asymmetric : Mode::Symmetric;
  if constexpr (kVariant == Variant::Specialized) {
    spec.quotient = Quotient::Divide;
    spec.scale_dtype = sizeof(C) == 8 ? DType::Float64 : DType::Float32;
  }
  return spec;
}

// What is enough where a segment's codes need no comparison with its bounds.
template <Codes kCodes, bool kAsymmetric>
inline constexpr Bounds kFreeBounds =
    kAsymmetric && !is_float8(kCodes) ? Bounds::Saturate : Bounds::None;

// Calls use(divides, bounds), as by_rule() calls use(divides). Of an args struct it takes the spec
// and `clamps`: whether codes need Bounds::Clamp.
template <Variant kVariant, Codes kCodes, bool kAsymmetric, class Args, class Use>
__device__ __forceinline__ void by_variant(const Args& args, const Use& use) {
  using Free = BoundsConstant<kFreeBounds<kCodes, kAsymmetric>>;
  if constexpr (kVariant == Variant::Specialized) {
    use(std::true_type{}, Free{});
  } else {
    // A float divided without bounds is Variant::Specialized, but for scales in float64, which are
    // too rare for code of their own.
    constexpr bool kRare = sizeof(args.spec.q_max) == 4 && !kAsymmetric && kCodes != Codes::E5M2;
    by_rule(args.spec.quotient, [&](auto divides) {
      if ((kRare && divides.value) || args.clamps)
        use(divides, BoundsConstant<Bounds::Clamp>{});
      else
        use(divides, Free{});
    });
  }
}

}  // namespace planq::affine
