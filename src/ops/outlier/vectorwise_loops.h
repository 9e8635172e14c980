// Loops of vectorwise quantization for one instruction set: see vectorwise_host.h. No include
// guard: see host/instruction_sets.h.

namespace planq::host::PLANQ_LEVEL {

template <class C>
void prepare(VectorwiseChunk<C>& s, std::int64_t count) {
  using Ieee = math::Ieee<C>;
  typename Ieee::Bits largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    s.factor[i] = outlier::factor_of(s.scale[i]);
    largest = std::max(largest, math::magnitude_bits(s.factor[i]));
  }
  std::int32_t low = 0, high = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    s.zero[i] = static_cast<C>(s.zero_point[i]);
    low = std::min(low, s.zero_point[i]);
    high = std::max(high, s.zero_point[i]);
  }
  s.products = largest < Ieee::kInfinity;
  s.narrow = low >= -(1 << 30) && high <= 1 << 30;
}

// Quantizes as outlier/vectorwise.h does, with the form known at compile time. kProducts: no
// element of the chunk needs a division.
template <VectorwiseForm kForm, bool kProducts, class C>
void quantize_chunk(VectorwiseChunk<C>& s, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const bool product = kProducts || (!outlier::is_divided(kForm) && math::is_finite(s.factor[i]));
    const outlier::Factors<C> factors = {s.scale[i], s.factor[i], s.zero[i], product};
    s.code[i] = outlier::vectorwise_code<C>(kForm, s.value[i], factors);
  }
  for (std::int64_t i = 0; i < count; ++i) s.byte[i] = static_cast<std::uint8_t>(s.code[i]);
}

template <class C>
void vectorwise_quantize(VectorwiseForm form, VectorwiseChunk<C>& s, std::int64_t count) {
  if (outlier::has_zero_point(form))
    quantize_chunk<VectorwiseForm::Zeropoint, false>(s, count);
  else if (outlier::is_divided(form))
    quantize_chunk<VectorwiseForm::Truncated, false>(s, count);
  else if (s.products)
    quantize_chunk<VectorwiseForm::Vector, true>(s, count);
  else
    quantize_chunk<VectorwiseForm::Vector, false>(s, count);
}

template <VectorwiseForm kForm, class C>
void dequantize_chunk(VectorwiseChunk<C>& s, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    s.value[i] = outlier::vectorwise_element<C>(kForm, s.code[i], s.scale[i], s.zero_point[i]);
}

template <class C>
void vectorwise_dequantize(VectorwiseForm form, VectorwiseChunk<C>& s, std::int64_t count) {
  if (!outlier::has_zero_point(form)) {
    dequantize_chunk<VectorwiseForm::Vector>(s, count);
  } else if (s.narrow) {
    for (std::int64_t i = 0; i < count; ++i)
      s.value[i] = static_cast<C>(s.code[i] - s.zero_point[i]) / s.scale[i];
  } else {
    dequantize_chunk<VectorwiseForm::Zeropoint>(s, count);
  }
}

template <class C>
inline constexpr VectorwiseLoops<C> kVectorwise = {prepare<C>, vectorwise_quantize<C>,
                                                   vectorwise_dequantize<C>};

}  // namespace planq::host::PLANQ_LEVEL
