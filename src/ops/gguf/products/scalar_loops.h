// Blocks of the product without vectors: codes are unpacked one by one. No include guard, like the
// other parts of host_loops.h.

namespace planq::gguf::products::PLANQ_LEVEL {

// A span of a row of weights.
template <class B>
struct WeightSpan {
  static constexpr int kSubBlocks = kSpan / B::kSubBlock;

  int terms;
  std::int8_t codes[kSpan];
  float scale[kSubBlocks], minimum[kSubBlocks];

  // The terms from `first` on.
  WeightSpan(gguf::Bytes row, int64_t first, int64_t end)
      : terms(static_cast<int>(std::min<int64_t>(kSpan, end - first))) {
    for (int e = 0; e < terms; e += B::kSubBlock) {
      const gguf::Bytes block = row + (first + e) / B::kElements * B::kBytes;
      const int at = static_cast<int>((first + e) % B::kElements);
      const gguf::Run<B> run(block, at);
      scale[e / B::kSubBlock] = run.scale;
      minimum[e / B::kSubBlock] = run.minimum;
      unpack(block, at, codes + e);
    }
  }

  float sum(const InputSpan& input) const {
    float a = 0;
    for (int i = 0; i < terms / B::kSubBlock; ++i) {
      std::int32_t dot = 0;
      for (int e = i * B::kSubBlock; e < (i + 1) * B::kSubBlock; ++e)
        dot += codes[e] * input.codes[e];
      const float product_scale = scale[i] * input.scale[i * B::kSubBlock / kGroup];
      a = math::fused(product_scale, static_cast<float>(dot), a);
      if constexpr (gguf::Run<B>::kHasMinimum) a = math::fused(minimum[i], input.sum[i], a);
    }
    return a;
  }

 private:
  // The codes of the sub-block whose first element is `at`.
  static void unpack(gguf::Bytes block, int at, std::int8_t* to) {
    if constexpr (gguf::HasEights<B>) {
      for (int i = 0; i < B::kSubBlock; i += 8) {
        const std::uint64_t eight = B::eight(block, (at + i) / 8);
        std::memcpy(to + i, &eight, sizeof eight);
      }
    } else {
      for (int i = 0; i < B::kSubBlock; ++i)
        to[i] = static_cast<std::int8_t>(B::code(block, at + i));
    }
  }
};

// The sums of a block, kTileColumns of each row.
template <class B>
void scalar_sums(const Gemm& p, const Block& b, float* sums) {
  std::fill_n(sums, b.rows * kTileColumns, 0.0f);
  for (int64_t column = 0; column < b.columns; ++column) {
    const gguf::Bytes weight = p.weight.data + (b.column + column) * p.weight.row_stride;
    const InputSpan* input = b.spans;
    for (int64_t k = 0; k < p.k; k += kSpan, input += b.span_step) {
      const WeightSpan<B> span(weight, k, p.k);
      for (int64_t row = 0; row < b.rows; ++row)
        sums[row * kTileColumns + column] += span.sum(input[row]);
    }
  }
}

}  // namespace planq::gguf::products::PLANQ_LEVEL
