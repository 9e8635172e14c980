// What both backends know of bins: which of them a pair of indices names, and what becomes of one.
#pragma once

#include <bit>

#include "math/formats.h"
#include "math/tree_sum.h"
#include "ops/statistics/histogram_scatter_add/desc.h"

namespace planq::histogram_scatter_add {

// Sources are sorted by their bins, a digit at a time from the lowest, so that those of a bin stay
// in their order.
inline constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;

struct Bins {
  float* data;
  const std::int32_t *index1, *index2;
  const float* source;
  std::int64_t rows, columns, stride;

  explicit Bins(const Call& call)
      : data(static_cast<float*>(call.operands[kHistogram].data)),
        index1(static_cast<const std::int32_t*>(call.operands[kIndex1].data)),
        index2(static_cast<const std::int32_t*>(call.operands[kIndex2].data)),
        source(static_cast<const float*>(call.operands[kSource].data)),
        rows(call.fields<Fields>().shape[0]),
        columns(call.fields<Fields>().shape[1]),
        stride(call.operands[kHistogram].strides[0]) {}

  PLANQ_HD std::int64_t count() const { return rows * columns; }
  // Digits of the numbers of all bins, and of count() itself, which is the bin of what is outside.
  int digits() const {
    const int bits = std::bit_width(static_cast<std::uint64_t>(count()));
    return (bits + kDigitBits - 1) / kDigitBits;
  }
  PLANQ_HD std::int64_t of(std::int64_t i) const {
    const std::int64_t row = index1[i], column = index2[i];
    const bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
    return inside ? row * columns + column : count();
  }

  // Whether the tree of a sum of so many numbers has places that are filled with +0.
  PLANQ_HD static bool fills(std::int64_t terms) {
    while (terms > math::kSumLeaf) {
      const std::int64_t rest = terms % math::kSumLeaf;
      if ((rest & (rest - 1)) != 0) return true;
      terms = terms / math::kSumLeaf + (rest != 0);
    }
    return (terms & (terms - 1)) != 0;
  }
  // `sum`: of so many sources, without what fills the tree, which makes +0 of -0 and nothing else.
  PLANQ_HD void add(std::int64_t bin, float sum, std::int64_t terms) const {
    float& held = data[bin / columns * stride + bin % columns];
    held = math::narrow<float>(held + (fills(terms) ? sum + 0.0f : sum));
  }
};

inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis =
        "sources sorted by bin, in their order; sums by a tree that their number fixes; no "
        "float atomics"};

}  // namespace planq::histogram_scatter_add
