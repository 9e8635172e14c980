// The host kernels of operators whose sums are floating: one for each order of sums and pair of
// types. A struct of kernels has the operator's Fields, its name kName and compute().
#pragma once

#include "core/rejects.h"
#include "host/elementwise.h"
#include "ops/linear/product_host.h"

namespace planq::host {

template <class Op, Accumulation kAccumulation, DType kIn, DType kOut>
Reason rejects_floats(const Descriptor& descriptor, const Device&) {
  const auto& f = descriptor.as<typename Op::Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (reason.accepted()) reason = expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::Feature, "accumulation", kAccumulation, f.accumulation);
}

// What products of an input's type are named after.
constexpr MathPrecision float_math(Accumulation accumulation, DType input) {
  if (accumulation == Accumulation::Lanes) return MathPrecision::F32;
  switch (input) {
    case DType::Float16:
      return MathPrecision::TensorCoreF16;
    case DType::BFloat16:
      return MathPrecision::TensorCoreBF16;
    case DType::Float8E4M3FN:
      return MathPrecision::TensorCoreE4M3;
    default:
      return MathPrecision::TensorCoreE5M2;
  }
}

template <class Op, Accumulation kAccumulation, DType kIn, DType kOut>
constexpr Kernel float_kernel() {
  constexpr std::string_view kLanes =
      "32 sums by fma, each in a fixed order, added up as a fixed tree";
  constexpr std::string_view kSlices =
      "tensor cores of sm_90 as measured, computed exactly; slices of 128 terms added up in order";
  return {.op = Op::kName,
          .method = name_of(kAccumulation),
          .dtypes = kDTypes<kIn, kOut>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = {.determinism = Determinism::BitExact,
                        .math = float_math(kAccumulation, kIn),
                        .accumulator = DType::Float32,
                        .rounding = Rounding::NearestEven,
                        .max_ulp = 0,
                        .error_bound = kNoErrorBound,
                        .batch_invariant = true,
                        .basis = kAccumulation == Accumulation::Lanes ? kLanes : kSlices},
          .rejects = rejects_floats<Op, kAccumulation, kIn, kOut>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = bind<Op::compute>};
}

// The kernels of an order of sums, for some types of the input.
template <class Op, Accumulation kAccumulation, DType... kIn>
constexpr auto float_kernels() {
  return joined(std::array<Kernel, 3>{float_kernel<Op, kAccumulation, kIn, DType::Float16>(),
                                      float_kernel<Op, kAccumulation, kIn, DType::BFloat16>(),
                                      float_kernel<Op, kAccumulation, kIn, DType::Float32>()}...);
}

}  // namespace planq::host
