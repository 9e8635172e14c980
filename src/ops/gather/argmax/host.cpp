// argmax on the host: pieces of rows, in loops that are compiled for every instruction set. The
// largest key of a row does not depend on how the row is cut.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "core/sku.h"
#include "host/bind.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/gather/argmax/desc.h"
#include "ops/gather/argmax/rows.h"
#include "ops/gather/largest.h"

#define PLANQ_LOOPS "ops/gather/largest_loops.h"
#include "host/instruction_sets.h"

namespace planq::argmax {
namespace {

using gather::LargestKey;
using std::int64_t;

// Elements that are worth waking a thread for.
constexpr int64_t kGrain = 1 << 14;

template <class T>
LargestKey largest_key() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kLargestKey<T>;
  if (level == host::Level::Avx2) return host::avx2::kLargestKey<T>;
#endif
  return host::baseline::kLargestKey<T>;
}

// One row by all threads.
int64_t largest_of_long(LargestKey find, const void* row, int64_t length, int threads) {
  std::atomic<int64_t> largest = gather::kNoKey;
  host::parallel_for(threads, length, kGrain, [&](int64_t first, int64_t last) {
    const int64_t own = find(row, first, last);
    int64_t known = largest.load(std::memory_order_relaxed);
    while (known < own && !largest.compare_exchange_weak(known, own, std::memory_order_relaxed)) {
    }
  });
  return largest;
}

template <DType kInputType>
Status compute(const Call& call, const Stream& stream) {
  using T = math::Stored<kInputType>;
  const Rows rows(call);
  const LargestKey find = largest_key<T>();
  const auto* const input = static_cast<const T*>(call.operands[kInput].data);
  const int64_t count = rows.size();
  if (count < stream.threads && rows.length > 2 * kGrain) {
    for (int64_t row = 0; row < count; ++row) {
      const auto at = rows.space.offsets(row);
      rows.store(at.at[1], largest_of_long(find, input + at.at[0], rows.length, stream.threads));
    }
    return Status::success();
  }
  const int64_t grain = std::max<int64_t>(kGrain / rows.length, 1);
  host::parallel_for(stream.threads, count, grain, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const auto at = rows.space.offsets(row);
      rows.store(at.at[1], find(input + at.at[0], 0, rows.length));
    }
  });
  return Status::success();
}

template <DType kInputType>
constexpr Kernel make_kernel() {
  return {.op = "argmax",
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
}  // namespace planq::argmax

PLANQ_KERNELS(argmax, host, kKernels);
