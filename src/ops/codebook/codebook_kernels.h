// The kernels of the codebook operators, for both backends. A struct describes the kernels of one
// operator and backend. It has the type Fields, the parts of names (kName, kBackend, kBody), the
// sentence kBasis, the revision kRevision of the bits, and workspace().
#pragma once

#include <string_view>

#include "core/registry.h"
#include "core/rejects.h"
#include "core/sku.h"
#include "ops/codebook/codebook.h"

namespace planq {

template <class Op, DType kIn, DType kOut, Rounding kRounding>
Reason rejects_codebook(const Descriptor& descriptor, const Device&) {
  const auto& f = descriptor.as<typename Op::Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (reason.accepted()) reason = expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype);
  if constexpr (requires { f.rounding; }) {
    if (reason.accepted()) return expect(ReasonKind::Feature, "rounding", kRounding, f.rounding);
  }
  return reason;
}

// kElements is the type of the floating elements: kIn of an encoder, kOut of a decoder.
template <class Op, DType kElements, DType kIn, DType kOut,
          Rounding kRounding = Rounding::NearestEven>
constexpr Kernel codebook_kernel(decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind) {
  constexpr bool kWide = kElements == DType::Float64;
  constexpr bool kHost = Op::kBackend == Backend::Host;
  return {
      .op = Op::kName,
      .arithmetic = kRounding == Rounding::Stochastic ? "stochastic" : "",
      .body = Op::kBody,
      .dtypes = kDTypes<kIn, kOut>,
      .revision = Op::kRevision,
      .backend = Op::kBackend,
      .arch = kHost ? ArchRange{} : ArchRange{80},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = compute_dtype(kElements),
                    .rounding = kRounding,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = Op::kBasis},
      .rejects = rejects_codebook<Op, kIn, kOut, kRounding>,
      .workspace = Op::workspace,
      .prepare = prepare,
      .bind = bind,
  };
}

}  // namespace planq
