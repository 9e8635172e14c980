// extract_outliers on the host: row by row, element by element, since outliers are few.

#include <algorithm>
#include <cstdint>

#include "host/bind.h"
#include "host/thread_pool.h"
#include "ops/outlier/extract_outliers/desc.h"

namespace planq::extract_outliers {
namespace {

using std::int64_t;

// The fewest elements that are worth waking a thread for.
constexpr int64_t kGrain = 1 << 14;

template <class E>
Status compute(const Call& call, const Stream& stream) {
  const Extraction<E> extraction(call.fields<Fields>(), call.operands);
  const int64_t capacity = extraction.capacity;
  if (capacity == 0) return Status::success();
  const int64_t grain = std::max<int64_t>(kGrain / capacity, 1);
  host::parallel_for(stream.threads, extraction.rows, grain, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      E* const output = extraction.output + extraction.output_rows.offsets(row).at[0];
      for (int64_t i = 0; i < capacity; ++i)
        output[i] = extraction.element(row, extraction.column(i));
    }
  });
  return Status::success();
}

template <DType kDType, class E>
constexpr Kernel make_kernel() {
  return {.op = "extract_outliers",
          .body = "elements",
          .dtypes = kDTypes<kDType>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kDType>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<E>>};
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Int8, std::int8_t>(),
    make_kernel<DType::Int32, std::int32_t>(),
};

}  // namespace

}  // namespace planq::extract_outliers

PLANQ_KERNELS(extract_outliers, host, kKernels);
