// sample on the host: threads take rows, in loops that are compiled for every instruction set. A
// row is walked several times. What is above a place in its order is found digit by digit, without
// a sort and without memory of its own.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "core/sku.h"
#include "host/bind.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/gather/largest.h"
#include "ops/gather/sample/desc.h"
#include "ops/gather/sample/rows.h"
#include "ops/gather/sample/weight.h"

namespace planq::sample {

using std::int64_t;

// Elements that are passed over together.
constexpr int64_t kGroup = 64;

using SampleRow = int64_t (*)(const void* row, int64_t length, const Settings& settings);

}  // namespace planq::sample

#define PLANQ_LOOPS "ops/gather/sample/loops.h"
#include "host/instruction_sets.h"

namespace planq::sample {
namespace {

// Elements that are worth waking a thread for.
constexpr int64_t kGrain = 1 << 12;

template <class T>
SampleRow sample_row() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kSampleRow<T>;
  if (level == host::Level::Avx2) return host::avx2::kSampleRow<T>;
#endif
  return host::baseline::kSampleRow<T>;
}

template <DType kInputType>
Status compute(const Call& call, const Stream& stream) {
  using T = math::Stored<kInputType>;
  const Rows rows(call);
  const SampleRow sample = sample_row<T>();
  const auto* const input = static_cast<const T*>(call.operands[kInput].data);
  std::atomic<int64_t> invalid = 0;
  const int64_t grain = std::max<int64_t>(kGrain / rows.length, 1);
  host::parallel_for(stream.threads, rows.size(), grain, [&](int64_t first, int64_t last) {
    int64_t own = 0;
    for (int64_t row = first; row < last; ++row) {
      const auto at = rows.space.offsets(row);
      const int64_t index = sample(input + at.at[kInput], rows.length, rows.settings(at));
      rows.output.store(at.at[kOutput], index);
      own += index < 0 ? 1 : 0;
    }
    if (own > 0) invalid.fetch_add(own, std::memory_order_relaxed);
  });
  if (auto* const total = static_cast<int64_t*>(call.operands[kInvalid].data)) *total = invalid;
  return Status::success();
}

template <DType kInputType>
constexpr Kernel make_kernel() {
  return {.op = "sample",
          .body = "rows",
          .dtypes = kDTypes<kInputType>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kInputType>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kInputType>>};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>()};

}  // namespace
}  // namespace planq::sample

PLANQ_KERNELS(sample, host, kKernels);
