// What host_products.cpp calls: the input as the loops read it, and whole blocks. No include guard,
// like the other parts of host_loops.h.

namespace planq::gguf::products::PLANQ_LEVEL {

// Whether weights of a type are in files.
template <class B>
constexpr bool kInFiles = B::kType != GgufType::Q8_1 && B::kType != GgufType::Q8_K;

// Fills a span from the codes of a row of the input, from a term on. Says whether one is -128.
template <class B>
bool fill_span(const Gemm& p, int64_t row, int64_t first, InputSpan& span) {
  int offset = 0;  // how far the codes that are multiplied are above the true ones
#if PLANQ_HAS_TILES
  offset = Unpack<B>::kOffset;
#endif
  const auto terms = static_cast<std::size_t>(std::min<int64_t>(kSpan, p.k - first));
  const auto* const codes = reinterpret_cast<const std::int8_t*>(p.input.data);
  const auto* const scale = static_cast<const float*>(p.epilogue.input_scale);
  std::memcpy(span.codes, codes + row * p.input.row_stride + first, terms);
  std::memcpy(span.scale, scale + row * p.epilogue.input_scale_row + first / kGroup,
              terms / kGroup * sizeof(float));
  std::int8_t least = 0;
  for (std::size_t i = 0; i < terms / B::kSubBlock; ++i) {
    std::int32_t sum = 0;
    for (std::size_t e = i * B::kSubBlock; e < (i + 1) * B::kSubBlock; ++e) {
      sum += span.codes[e];
      least = std::min(least, span.codes[e]);
    }
    span.start[i] = -offset * sum;
    span.sum[i] = span.scale[i * B::kSubBlock / kGroup] * static_cast<float>(sum);
  }
  return least == -128;
}

inline bool fill(GgufType type, const Gemm& p, int64_t row, int64_t first, InputSpan& span) {
  return gguf::by_type(type, [&](auto block) {
    using B = decltype(block);
    if constexpr (kInFiles<B>) return fill_span<B>(p, row, first, span);
    return false;
  });
}

template <class T>
void store_rows(const Gemm& p, const Block& b, float* sums) {
  const linear::Epilogue& e = p.epilogue;
  float bias[kTileColumns] = {}, residual[kTileColumns] = {};
  if (e.bias)
    host::PLANQ_LEVEL::load_numbers<float>(e.bias, e.bias_dtype, b.column, b.columns, bias);
  for (int64_t i = 0; i < b.rows; ++i, sums += kTileColumns) {
    const int64_t row = b.row + i;
    if (e.residual)
      host::PLANQ_LEVEL::load_numbers<float>(e.residual, e.residual_dtype,
                                             row * e.residual_row + b.column, b.columns, residual);
    for (int64_t c = 0; c < b.columns; ++c)
      sums[c] = linear::with_addends(sums[c], bias[c], residual[c], e);
    host::PLANQ_LEVEL::narrow<T>(sums, b.columns,
                                 reinterpret_cast<T*>(p.output) + row * p.output_row + b.column);
  }
}

// The sums of a block. Without VNNI, vectors multiply the widest codes only where no code of the
// input is -128.
template <class B>
void sums_of(const Gemm& p, const Block& b, float* sums) {
#if PLANQ_HAS_TILES
  if (p.n >= 4 && (Unpack<B>::kLargest > 0 || !b.has_least)) return vector_sums<B>(p, b, sums);
#endif
  scalar_sums<B>(p, b, sums);
}

inline void compute(GgufType type, const Gemm& p, const Block& b) {
  alignas(64) float sums[kMostRows * kTileColumns];
  gguf::by_type(type, [&](auto block) {
    using B = decltype(block);
    if constexpr (kInFiles<B>) sums_of<B>(p, b, sums);
  });
  switch (p.output_dtype) {
    case DType::Float16:
      return store_rows<math::Half>(p, b, sums);
    case DType::BFloat16:
      return store_rows<math::Bfloat16>(p, b, sums);
    default:
      return store_rows<float>(p, b, sums);
  }
}

inline constexpr Loops kLoops = {kTileColumns, fill, compute};

}  // namespace planq::gguf::products::PLANQ_LEVEL
