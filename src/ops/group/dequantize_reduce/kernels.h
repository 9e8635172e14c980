// The kernels of dequantize_reduce, for both backends: a struct with kBackend, kFeedback, and
// prepare() and kBind by the types on either side.
#pragma once

#include "ops/group/dequantize_reduce/desc.h"
#include "ops/group/group_kernels.h"

namespace planq::dequantize_reduce {

template <bool kFeedback, DType kIn, DType kOut>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect_feedback(kFeedback, has_feedback(f));
  if (reason.accepted()) reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype);
}

template <class Kernels, DType kIn, DType kOut>
constexpr Kernel make_kernel() {
  return {
      .op = "dequantize_reduce",
      .variant = Kernels::kFeedback ? kFeedbackVariant : "",
      .body = "ranks",
      .dtypes = kDTypes<kIn, kOut>,
      .revision = 1,
      .backend = Kernels::kBackend,
      .arch = Kernels::kBackend == Backend::Host ? ArchRange{} : ArchRange{80},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = MathPrecision::F32,
                    .accumulator = DType::Float32,
                    .rounding = Rounding::NearestEven,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = "one sum an element, in the order of ranks; exact maxima and minima; "
                             "no atomics"},
      .rejects = rejects<Kernels::kFeedback, kIn, kOut>,
      .workspace = no_workspace,
      .prepare = Kernels::template prepare<kIn, kOut>,
      .bind = Kernels::template kBind<kIn, kOut>,
  };
}

template <class Kernels, DType kIn>
constexpr std::array<Kernel, 4> kernels_from() {
  return {make_kernel<Kernels, kIn, kIn>(), make_kernel<Kernels, kIn, DType::Float16>(),
          make_kernel<Kernels, kIn, DType::BFloat16>(),
          make_kernel<Kernels, kIn, DType::Float32>()};
}

// Codes alone have errors.
template <class Kernels>
constexpr std::array<Kernel, 2> feedback_kernels() {
  return {make_kernel<Kernels, DType::Int8, DType::Int8>(),
          make_kernel<Kernels, DType::Int4, DType::Int4>()};
}

}  // namespace planq::dequantize_reduce
