// percentile_clip on the host: one kernel for each input type, all of them sums_host.h.
#include "ops/statistics/percentile_clip/clip.h"
#include "ops/statistics/sums_host.h"

namespace planq::percentile_clip {
namespace {

struct Kernels : host::SumKernels<Clipping, Kernels> {
  template <DType kType>
  static Status compute(const Call& call, const Stream& stream) {
    using T = math::Stored<kType>;
    using C = math::Compute<T>;
    const C sum = measure<T>(Measure::SquareSum, call, stream);
    const Clip<C> clip(call);
    math::OrderKey<C> keys[kRemembered];
    for (int place = 0; place < kRemembered; ++place) {
      clip.history[place] = clip.remembered(sum, place);
      keys[place] = math::order_key(clip.history[place]);
    }
    int bound = 0;
    while (Clip<C>::rank_of(keys, bound) != clip.percentile) ++bound;
    clip.store(sum, keys[bound]);
    return Status::success();
  }
};

constexpr auto kKernels = sum_kernels<Kernels>();

}  // namespace
}  // namespace planq::percentile_clip

PLANQ_KERNELS(percentile_clip, host, kKernels);
