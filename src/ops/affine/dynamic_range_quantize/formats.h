// What the kernels of MX and NVFP4 are on both backends: one for each input and output type. The
// arithmetic is in affine/microscaling.h.
#pragma once

#include <string_view>

#include "core/rejects.h"
#include "core/sku.h"
#include "ops/affine/dynamic_range_quantize/desc.h"

namespace planq::dynamic_range_quantize {

using affine::MxFp4;
using affine::MxFp8E4M3;
using affine::MxFp8E5M2;
using affine::Nvfp4;

template <DType kFrom, class F>
Reason rejects_format(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kFrom, f.input_dtype);
  if (reason.accepted())
    reason = expect(ReasonKind::DType, "output_dtype", F::kCode, f.output_dtype);
  if (reason.accepted())
    reason = expect(ReasonKind::Scope, "scope", ScopeKind::Group, f.scope.kind);
  const bool round_up = F::kMx && f.convention == Convention::MxRoundUp;
  if (!reason.accepted() || round_up) return reason;
  return expect(ReasonKind::Feature, "convention", F::kMx ? Convention::Mx : Convention::Nvfp4,
                f.convention);
}

// What stays the same whatever the backend; it adds how it computes.
template <DType kFrom, class F>
constexpr Kernel format_kernel() {
  return {
      .op = "dynamic_range_quantize",
      .variant = "group",
      .arithmetic = F::kMx ? "mx" : "nvfp4",
      .body = "groups",
      .dtypes = kDTypes<kFrom, F::kCode, F::kStoredScale>,
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = MathPrecision::F32,
                    .accumulator = DType::Float32,
                    .rounding = Rounding::NearestEven,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = F::kMx ? std::string_view("exact integer maximum of magnitudes; "
                                                       "scales are powers of two; one rounding "
                                                       "an element")
                                    : std::string_view("exact integer maximum of magnitudes; two "
                                                       "IEEE divisions a group; a product and a "
                                                       "rounding an element")},
      .rejects = rejects_format<kFrom, F>,
      .workspace = no_workspace,
      .prepare = nothing_to_prepare,
      .bind = nullptr};
}

}  // namespace planq::dynamic_range_quantize
