// The host kernels of operators whose sums are floating: one for each order of sums and pair of
// types. A struct of kernels has the operator's Fields, its name kName and compute().
#pragma once

#include "core/rejects.h"
#include "host/elementwise.h"
#include "ops/linear/float_guarantee.h"
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

template <class Op, Accumulation kAccumulation, DType kIn, DType kOut>
constexpr Kernel float_kernel() {
  return {.op = Op::kName,
          .method = name_of(kAccumulation),
          .dtypes = kDTypes<kIn, kOut>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = linear::kFloatGuarantee<kAccumulation, kIn>,
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
