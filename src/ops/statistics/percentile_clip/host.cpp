// percentile_clip on the host: one kernel for each input type, all of them sums_host.h.

#include "core/sku.h"
#include "host/elementwise.h"
#include "ops/statistics/percentile_clip/clip.h"
#include "ops/statistics/sums_host.h"

namespace planq::percentile_clip {
namespace {

template <DType kType>
Status compute(const Call& call, const Stream& stream) {
  using T = host::Stored<kType>;
  using C = math::Compute<T>;
  const Fields& f = call.fields<Fields>();
  Scratch scratch(call.workspace);
  const C sum = host::measure_tensor<T>(Measure::SquareSum, call.operands[kInput], f.shape,
                                        host::book_leaves<C>(f.shape, scratch), stream.threads);
  const Clip<C> clip(call);
  math::OrderKey<C> keys[kRemembered];
  for (int place = 0; place < kRemembered; ++place) {
    clip.history[place] = clip.remembered(sum, place);
    keys[place] = math::order_key(clip.history[place]);
  }
  int bound = 0;
  while (Clip<C>::rank_of(keys, bound) != f.percentile) ++bound;
  clip.store(sum, keys[bound]);
  return Status::success();
}

template <DType kType>
constexpr Kernel make_kernel() {
  return {
      .op = "percentile_clip",
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

}  // namespace planq::percentile_clip

PLANQ_KERNELS(percentile_clip, host, kKernels);
