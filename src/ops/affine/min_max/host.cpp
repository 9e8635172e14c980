// min_max on the host: one kernel for each input type, all of them affine/ranges/host.h.

#include <array>
#include <string>
#include <string_view>

#include "core/sku.h"
#include "host/bind.h"
#include "ops/affine/min_max/desc.h"
#include "ops/affine/ranges/host.h"

namespace planq::min_max {
namespace {

Status compute(const Call& call, const Stream& stream) {
  const Fields& fields = call.fields<Fields>();
  const Operands& operands = call.operands;
  host::measure_ranges(problem_of(fields), ranges_of(fields, operands), stream);
  return Status::success();
}

std::size_t workspace(const Descriptor&, const Device&) { return 0; }

template <DType kInput>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& fields = descriptor.as<Fields>();
  if (fields.input_dtype == kInput) return Reason::accept();
  return Reason::refuse(ReasonKind::DType, "measures input_dtype ", name_of(kInput), ", not ",
                        name_of(fields.input_dtype));
}

template <DType kInput>
constexpr Kernel make_kernel() {
  using C = std::conditional_t<kInput == DType::Float64, double, float>;
  return {
      .op = "min_max",
      .body = "rows",
      .dtypes = kDTypes<kInput, compute_dtype(kInput)>,
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = guarantee<C>(),
      .rejects = rejects<kInput>,
      .workspace = workspace,
      .prepare = nothing_to_prepare,
      .bind = host::bind<compute>,
  };
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>(), make_kernel<DType::Float64>()};

}  // namespace

}  // namespace planq::min_max

PLANQ_KERNELS(min_max, host, kKernels);
