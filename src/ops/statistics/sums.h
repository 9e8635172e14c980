// Sums and maxima over all elements of a tensor, for norms: what is measured of an element, and
// what the kernels of both backends promise.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/registry.h"
#include "core/rejects.h"
#include "core/sku.h"
#include "math/ieee.h"
#include "math/tree_sum.h"

namespace planq {

// Sums are those of math/tree_sum.h, over the elements in their logical order.
enum class Measure : std::uint8_t { SquareSum, MagnitudeSum, LargestMagnitude };

// What an operator stores of its input.
struct Measured {
  Measure measure;
  bool takes_root = false;  // of what was measured
};

// What is stored of a measured number: a NaN becomes the canonical one.
template <class C>
PLANQ_HD C stored_measure(C measured) {
  return math::is_nan(measured) ? math::canonical_nan<C>() : measured;
}

inline std::int64_t sum_leaves(std::int64_t elements) {
  return elements / math::kSumLeaf + (elements % math::kSumLeaf != 0);
}

template <DType kInput>
constexpr Guarantee sum_guarantee() {
  return {.determinism = Determinism::BitExact,
          .math = kInput == DType::Float64 ? MathPrecision::F64 : MathPrecision::F32,
          .accumulator = compute_dtype(kInput),
          .rounding = Rounding::NearestEven,
          .max_ulp = 0,
          .error_bound = kNoErrorBound,
          .batch_invariant = true,
          .basis = std::string_view("IEEE operations; sums by a tree that the number of elements "
                                    "fixes; exact integer maximum of magnitudes")};
}

// The kernels of an operator with sums, one for each input type. `Kernels` is of one backend: the
// operator's Fields, which have shape and input_dtype, and its name kName; kBackend and kArch; and
// by the input's type workspace, prepare and bind.
template <class Kernels, DType kType>
struct SumKernel {
  static Reason rejects(const Descriptor& descriptor, const Device&) {
    const auto& f = descriptor.as<typename Kernels::Fields>();
    return expect(ReasonKind::DType, "input_dtype", kType, f.input_dtype);
  }

  static constexpr Kernel make() {
    return {.op = Kernels::kName,
            .body = "tree",
            .dtypes = kDTypes<kType, compute_dtype(kType)>,
            .revision = 1,
            .backend = Kernels::kBackend,
            .arch = Kernels::kArch,
            .rank = 0,
            .guarantee = sum_guarantee<kType>(),
            .rejects = rejects,
            .workspace = Kernels::template workspace<kType>,
            .prepare = Kernels::template prepare<kType>,
            .bind = Kernels::template bind<kType>};
  }
};
template <class Kernels>
constexpr std::array<Kernel, 4> sum_kernels() {
  return {SumKernel<Kernels, DType::Float16>::make(), SumKernel<Kernels, DType::BFloat16>::make(),
          SumKernel<Kernels, DType::Float32>::make(), SumKernel<Kernels, DType::Float64>::make()};
}

}  // namespace planq
