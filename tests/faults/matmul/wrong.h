// Wrong products of float16 in the order of the tensor cores: slices are added from the last to the
// first, and where there are several rows, all terms are cut in two.
#pragma once

#include "../wrong.h"
#include "math/formats.h"
#include "math/tensor_core.h"
#include "ops/linear/matmul/desc.h"

namespace planq::matmul {

// A row of float16, as math/tensor_core.h takes factors.
struct HalfRow {
  const math::Half* values;
  std::int64_t step;
  static constexpr int smallest = -14;

  PLANQ_HD float operator[](std::int64_t i) const { return math::widen(values[i * step]); }
  PLANQ_HD HalfRow from(std::int64_t i) const { return {values + i * step, step}; }
};

struct Product {
  linear::Gemm gemm;
  std::int64_t count;

  Product(const Call& call, int)
      : gemm(Layer::gemm_of(call)), count(gemm.empty() ? 0 : gemm.batch.size() * gemm.m * gemm.n) {}

  PLANQ_HD static HalfRow row_of(const linear::GemmOperand& side, std::int64_t row) {
    return {reinterpret_cast<const math::Half*>(side.data) + row * side.row_stride,
            side.term_stride};
  }
  // A chain over terms from a slice's first one on.
  PLANQ_HD static float slice(HalfRow a, HalfRow w, std::int64_t first, std::int64_t last) {
    const std::int64_t left = last - first;
    return math::tensor_core_chain<math::TensorCore16, HalfRow>(
        0.0f, a.from(first), w.from(first),
        left < math::kTensorCoreSlice ? left : math::kTensorCoreSlice);
  }
  PLANQ_HD static void store(const linear::Gemm& p, std::int64_t at, float sum) {
    const float y = math::is_nan(sum) ? math::canonical_nan<float>() : sum;
    if (p.output_dtype == DType::Float16)
      reinterpret_cast<math::Half*>(p.output)[at] = math::narrow<math::Half>(y);
    else if (p.output_dtype == DType::BFloat16)
      reinterpret_cast<math::Bfloat16*>(p.output)[at] = math::narrow<math::Bfloat16>(y);
    else
      reinterpret_cast<float*>(p.output)[at] = y;
  }
  template <class Sum>
  PLANQ_HD void compute(std::int64_t i, const Sum& sum) const {
    const linear::Gemm one = gemm.at(i / (gemm.m * gemm.n));
    const linear::Epilogue& e = one.epilogue;
    const std::int64_t row = i / gemm.n % gemm.m, column = i % gemm.n;
    const float bias = e.bias ? math::load_scale<float>(e.bias, column, e.bias_dtype) : 0.0f;
    store(one, row * one.output_row + column,
          linear::with_addends(sum(row_of(one.input, row), row_of(one.weight, column)), bias,
                               linear::residual_at<float>(e, row, column), e));
  }
};

struct SlicesBackwards : Product {
  static constexpr std::string_view kName = "wrong_slices_backwards";
  using Product::Product;

  PLANQ_HD void operator()(std::int64_t i) const {
    compute(i, [k = gemm.k](HalfRow a, HalfRow w) {
      constexpr std::int64_t kSlice = math::kTensorCoreSlice;
      float sum = 0;
      for (std::int64_t s = (k - 1) / kSlice; s >= 0 && k > 0; --s)
        sum += slice(a, w, s * kSlice, k);
      return sum;
    });
  }
};

struct SplitByBatch : Product {
  static constexpr std::string_view kName = "wrong_split_by_batch";
  using Product::Product;

  PLANQ_HD void operator()(std::int64_t i) const {
    compute(i, [k = gemm.k, several = gemm.m > 1](HalfRow a, HalfRow w) {
      const std::int64_t half = several ? k / 2 : k;
      const float first = part(a, w, 0, half);
      return half == k ? first : first + part(a, w, half, k);
    });
  }

 private:
  PLANQ_HD static float part(HalfRow a, HalfRow w, std::int64_t first, std::int64_t last) {
    float sum = 0;
    for (std::int64_t s = first; s < last; s += math::kTensorCoreSlice) sum += slice(a, w, s, last);
    return sum;
  }
};

inline Reason rejects_wrong(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", DType::Float16, f.input_dtype);
  if (reason.accepted())
    reason = expect(ReasonKind::Feature, "accumulation", Accumulation::TensorSm90, f.accumulation);
  return reason;
}

constexpr Kernel wrong_entry() {
  Kernel kernel = wrong::entry("matmul", kDTypes<DType::Float16>, 1,
                               wrong::kPromise<MathPrecision::TensorCoreF16>, rejects_wrong);
  kernel.arithmetic = "tensor_sm90";
  return kernel;
}
inline constexpr Kernel kWrong = wrong_entry();

}  // namespace planq::matmul
