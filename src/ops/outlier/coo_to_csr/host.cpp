// coo_to_csr on the host: a search for each row.

#include <cstdint>

#include "host/bind.h"
#include "host/thread_pool.h"
#include "ops/outlier/coo.h"
#include "ops/outlier/coo_to_csr/desc.h"

namespace planq::coo_to_csr {
namespace {

using std::int64_t;

// The fewest rows that are worth waking a thread for.
constexpr int64_t kGrain = 1 << 12;

Status compute(const Call& call, const Stream& stream) {
  const Fields& f = call.fields<Fields>();
  const auto* const indices = static_cast<const std::int32_t*>(call.operands[kRowIndex].data);
  const auto* const count = static_cast<const int64_t*>(call.operands[kCount].data);
  auto* const pointer = static_cast<std::int32_t*>(call.operands[kPointer].data);
  const int64_t entries = outlier::kept_entries(*count, f.capacity);
  const auto index = [=](int64_t i) { return indices[i]; };
  host::parallel_for(
      stream.threads, outlier::rows_of(f.shape) + 1, kGrain, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row)
          pointer[row] = static_cast<std::int32_t>(outlier::count_below(index, entries, row));
      });
  return Status::success();
}

constexpr Kernel kKernels[] = {{.op = "coo_to_csr",
                                .body = "search",
                                .revision = 1,
                                .backend = Backend::Host,
                                .arch = {},
                                .rank = 0,
                                .guarantee = kGuarantee,
                                .rejects = accept,
                                .workspace = no_workspace,
                                .prepare = nothing_to_prepare,
                                .bind = host::bind<compute>}};

}  // namespace

}  // namespace planq::coo_to_csr

PLANQ_KERNELS(coo_to_csr, host, kKernels);
