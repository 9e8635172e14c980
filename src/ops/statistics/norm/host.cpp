// norm on the host: one kernel for each input type, all of them sums_host.h.

#include <cmath>

#include "core/scratch.h"
#include "core/sku.h"
#include "host/elementwise.h"
#include "ops/statistics/norm/desc.h"
#include "ops/statistics/sums_host.h"

namespace planq::norm {
namespace {

template <DType kType>
Status compute(const Call& call, const Stream& stream) {
  using T = host::Stored<kType>;
  using C = math::Compute<T>;
  const Fields& f = call.fields<Fields>();
  Scratch scratch(call.workspace);
  const C measured =
      host::measure_tensor<T>(measure_of(f.p), call.operands[kInput], f.shape,
                              host::book_leaves<C>(f.shape, scratch), stream.threads);
  const C norm = f.p == NormOrder::Two ? std::sqrt(measured) : measured;
  *static_cast<C*>(call.operands[kOutput].data) = stored_measure(norm);
  return Status::success();
}

template <DType kType>
constexpr Kernel make_kernel() {
  return {
      .op = "norm",
      .method = "tree",
      .dtypes = kDTypes<kType, compute_dtype(kType)>,
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = sum_guarantee<kType>(),
      .rejects = rejects_other_input<Fields, kType>,
      .workspace = host::leaves_workspace<Fields, host::Stored<kType>>,
      .prepare = host::nothing_to_prepare,
      .bind = host::bind<compute<kType>>,
  };
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>(), make_kernel<DType::Float64>()};

}  // namespace

}  // namespace planq::norm

PLANQ_KERNELS(norm, host, kKernels);
