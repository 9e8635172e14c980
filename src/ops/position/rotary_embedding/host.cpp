// rotary_embedding on the host: heads one after another, in place.

#include <algorithm>
#include <cstdint>

#include "core/sku.h"
#include "host/bind.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/position/head_host.h"
#include "ops/position/heads.h"
#include "ops/position/rotary_embedding/desc.h"

namespace planq::rotary_embedding {
namespace {

using position::Heads;
using std::int64_t;

// The fewest elements that are worth waking a thread for.
constexpr int64_t kGrain = 16384;

template <DType kType>
Status compute(const Call& call, const Stream& stream) {
  using T = math::Stored<kType>;
  const Heads heads = heads_of(call);
  const float eps = heads.eps.get();
  const int64_t count = heads.tokens * heads.of_token;
  host::parallel_for(stream.threads, count, std::max<int64_t>(kGrain / heads.columns, 1),
                     [&](int64_t first, int64_t last) {
                       position::HeadTurner<T> turner(heads, eps);
                       for (int64_t i = first; i < last; ++i) {
                         const int64_t token = i / heads.of_token, head = i % heads.of_token;
                         turner.turn(token, head, heads.row<T>(token, head));
                       }
                     });
  int64_t invalid = 0;
  for (int64_t token = 0; token < heads.tokens; ++token)
    invalid += heads.has(heads.position(token)) ? 0 : 1;
  *static_cast<int64_t*>(call.operands[kInvalid].data) = invalid;
  return Status::success();
}

template <DType kType>
constexpr Kernel make_kernel() {
  return {.op = "rotary_embedding",
          .body = "heads",
          .dtypes = kDTypes<kType, kType>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kType>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kType>>};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>()};

}  // namespace
}  // namespace planq::rotary_embedding

PLANQ_KERNELS(rotary_embedding, host, kKernels);
