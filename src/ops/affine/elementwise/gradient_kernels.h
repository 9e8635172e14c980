// The kernels of the gradients, for both backends. What a gradient says of itself is a struct
// Gradient in its desc.h: its Fields, its name kName, a sentence kBasis, which of its types the
// kernels are for, as the field kElement and as element(), and the revisions of its kernels.
#pragma once

#include <string_view>

#include "core/registry.h"
#include "core/rejects.h"
#include "core/sku.h"

namespace planq {

template <class Gradient, DType kType>
Reason rejects_gradient(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, Gradient::kElement, kType,
                Gradient::element(descriptor.as<typename Gradient::Fields>()));
}

template <class Gradient, Backend kBackend, DType kType>
constexpr Kernel gradient_kernel(decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind) {
  constexpr bool kWide = kType == DType::Float64;
  return {
      .op = Gradient::kName,
      .body = "elements",
      .dtypes = kDTypes<kType, kType>,
      .revision = kBackend == Backend::Host ? Gradient::kHostRevision : Gradient::kCudaRevision,
      .backend = kBackend,
      .arch = kBackend == Backend::Host ? ArchRange{} : ArchRange{80},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = compute_dtype(kType),
                    .rounding = Rounding::NearestEven,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = Gradient::kBasis},
      .rejects = rejects_gradient<Gradient, kType>,
      .workspace = [](const Descriptor&, const Device&) -> std::size_t { return 0; },
      .prepare = prepare,
      .bind = bind,
  };
}

}  // namespace planq
