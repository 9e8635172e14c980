// Loops of vectorwise quantization for one instruction set: see vectorwise_host.h. No include
// guard: see instruction_sets.h.

namespace planq::host::PLANQ_LEVEL {

// The same steps as outlier::vectorwise_code() and vectorwise_element(), with the form known.
template <VectorwiseForm kForm, class C>
void quantize_chunk(Chunk<C>& s, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto factors = outlier::factors_of<C>(kForm, s.scale[i], s.zero_point[i]);
    s.byte[i] = static_cast<std::uint8_t>(outlier::vectorwise_code<C>(kForm, s.value[i], factors));
  }
}
template <VectorwiseForm kForm, class C>
void dequantize_chunk(Chunk<C>& s, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    s.value[i] = outlier::vectorwise_element<C>(kForm, s.code[i], s.scale[i], s.zero_point[i]);
}

template <class C>
void vectorwise_quantize(VectorwiseForm form, Chunk<C>& s, std::int64_t count) {
  if (outlier::has_zero_point(form))
    quantize_chunk<VectorwiseForm::Zeropoint>(s, count);
  else if (outlier::is_divided(form))
    quantize_chunk<VectorwiseForm::Truncated>(s, count);
  else
    quantize_chunk<VectorwiseForm::Vector>(s, count);
}
template <class C>
void vectorwise_dequantize(VectorwiseForm form, Chunk<C>& s, std::int64_t count) {
  if (outlier::has_zero_point(form))
    dequantize_chunk<VectorwiseForm::Zeropoint>(s, count);
  else
    dequantize_chunk<VectorwiseForm::Vector>(s, count);
}

template <class C>
inline constexpr VectorwiseLoops<C> kVectorwise = {vectorwise_quantize<C>,
                                                   vectorwise_dequantize<C>};

}  // namespace planq::host::PLANQ_LEVEL
