// Loops over chunks, for one instruction set: see host.h. No include guard: see
// instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

template <bool kDivide, class C>
inline C quotient(C x, C scale, C inverse) {
  if constexpr (kDivide)
    return x / scale;
  else
    return x * inverse;
}

// The rounded quotient inside its bounds; a NaN counts as 0. Clamping to integers commutes with
// rounding, and adding kRoundingShift rounds to even what the bounds keep small.
template <class C>
inline C bounded(C q, C low, C high) {
  q = q == q ? q : C{0};
  return math::clamp(q, low, high);
}

template <bool kDivide, class C>
void integer_codes(Chunk<C>& s, std::int64_t count) {
  using Bits = typename Ieee<C>::Bits;
  Bits wide[kChunk];
  for (std::int64_t i = 0; i < count; ++i) {
    const C q =
        bounded(quotient<kDivide>(s.value[i], s.scale[i], s.inverse[i]), s.low[i], s.high[i]);
    wide[i] = IntegerCode::of(q);
  }
  for (std::int64_t i = 0; i < count; ++i)
    s.byte[i] = static_cast<std::uint8_t>(wide[i] + static_cast<std::uint32_t>(s.zero_point[i]));
}

template <class Code, bool kDivide, class C>
void float8_codes(Chunk<C>& s, std::int64_t count, bool propagate) {
  using Bits = typename Ieee<C>::Bits;
  const Bits nan_code = propagate ? 0x7F : 0;
  Bits wide[kChunk];
  for (std::int64_t i = 0; i < count; ++i) {
    const C q = quotient<kDivide>(s.value[i], s.scale[i], s.inverse[i]);
    const Bits code = Code::of(bounded(q, s.low[i], s.high[i]));
    wide[i] = (q == q || !propagate) ? code : nan_code;
  }
  for (std::int64_t i = 0; i < count; ++i) s.byte[i] = static_cast<std::uint8_t>(wide[i]);
}

template <class C>
void quantize(Chunk<C>& s, std::int64_t count, const math::AffineSpec<C>& spec) {
  const bool divide = spec.quotient == Quotient::Divide;
  const bool propagate = spec.nonfinite == NonFinite::Propagate;
  if (spec.output_dtype == DType::Float8E4M3FN) {
    divide ? float8_codes<E4M3Code, true>(s, count, propagate)
           : float8_codes<E4M3Code, false>(s, count, propagate);
  } else if (spec.output_dtype == DType::Float8E5M2) {
    divide ? float8_codes<E5M2Code, true>(s, count, propagate)
           : float8_codes<E5M2Code, false>(s, count, propagate);
  } else if (s.vector) {
    divide ? integer_codes<true>(s, count) : integer_codes<false>(s, count);
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      s.byte[i] = math::given_code(s.value[i], spec, s.segment(static_cast<int>(i)));
  }
}

template <class C>
void dequantize(Chunk<C>& s, std::int64_t count) {
  if (s.vector) {
    for (std::int64_t i = 0; i < count; ++i)
      s.value[i] = s.scale[i] * (static_cast<C>(s.code[i]) - static_cast<C>(s.zero_point[i]));
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      s.value[i] = math::dequantized(s.code[i], s.scale[i], s.zero_point[i]);
  }
}

template <bool kDivide, bool kStochastic, class C>
void fake_values(Chunk<C>& s, std::int64_t count, bool propagate) {
  for (std::int64_t i = 0; i < count; ++i) {
    const C x = s.value[i];
    C q = quotient<kDivide>(x, s.scale[i], s.inverse[i]);
    if constexpr (kStochastic) q = math::floor_of(q + s.uniform[i]);
    q = bounded(q, s.low[i], s.high[i]);
    const C y = s.scale[i] * ((q + kRoundingShift<C>)-kRoundingShift<C>);
    s.value[i] = (x == x || !propagate) ? y : math::canonical_nan<C>();
  }
}

template <class C>
void fake(Chunk<C>& s, std::int64_t count, const math::AffineSpec<C>& spec, bool stochastic) {
  const bool divide = spec.quotient == Quotient::Divide;
  const bool propagate = spec.nonfinite == NonFinite::Propagate;
  if (!s.vector) {
    for (std::int64_t i = 0; i < count; ++i)
      s.value[i] = math::fake_quantized(s.value[i], spec, s.segment(static_cast<int>(i)),
                                        stochastic, s.uniform[i]);
  } else if (stochastic) {
    divide ? fake_values<true, true>(s, count, propagate)
           : fake_values<false, true>(s, count, propagate);
  } else {
    divide ? fake_values<true, false>(s, count, propagate)
           : fake_values<false, false>(s, count, propagate);
  }
}

template <bool kDivide, class C>
void pass_bytes(Chunk<C>& s, std::int64_t count) {
  using Bits = typename Ieee<C>::Bits;
  // What lies outside the bounds may come nearer, as long as it stays outside; so does a NaN.
  Bits wide[kChunk];
  for (std::int64_t i = 0; i < count; ++i) {
    const C q = quotient<kDivide>(s.value[i], s.scale[i], s.inverse[i]);
    const C near = math::clamp(q, s.low[i] - C{2}, s.high[i] + C{2});
    const C rounded = (near + kRoundingShift<C>)-kRoundingShift<C>;
    wide[i] = (rounded >= s.low[i]) & (rounded <= s.high[i]);
  }
  for (std::int64_t i = 0; i < count; ++i) s.byte[i] = static_cast<std::uint8_t>(wide[i]);
}

template <class C>
void pass(Chunk<C>& s, std::int64_t count, const math::AffineSpec<C>& spec) {
  if (!s.vector || is_fp8(spec.output_dtype)) {
    for (std::int64_t i = 0; i < count; ++i)
      s.byte[i] = math::passes(s.value[i], spec, s.segment(static_cast<int>(i)));
  } else if (spec.quotient == Quotient::Divide) {
    pass_bytes<true>(s, count);
  } else {
    pass_bytes<false>(s, count);
  }
}

template <class T>
inline constexpr AffineLoops<Compute<T>> kLoops = {
    widen<T>,         narrow<T>,       quantize<Compute<T>>, dequantize<Compute<T>>,
    fake<Compute<T>>, pass<Compute<T>>};

}  // namespace planq::host::PLANQ_LEVEL
