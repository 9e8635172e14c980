// moe_unpermute on the host: chunks of the rows of the output, in loops that are compiled for every
// instruction set.

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/sku.h"
#include "host/bind.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/routing/moe_unpermute/desc.h"

namespace planq::moe_unpermute {

using std::int64_t;

// Columns of a chunk.
constexpr int64_t kChunk = 512;

struct Loops {
  void (*add_row)(const void* row, int64_t count, float weight, float* sums);
  void (*narrow)(const float* from, int64_t count, void* to);
};

}  // namespace planq::moe_unpermute

#define PLANQ_LOOPS "ops/routing/moe_unpermute/loops.h"
#include "host/instruction_sets.h"

namespace planq::moe_unpermute {
namespace {

// The fewest chunks that are worth waking a thread for.
constexpr int64_t kGrain = 8;

template <class T, class U>
const Loops& sum_loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kSumLoops<T, U>;
  if (level == host::Level::Avx2) return host::avx2::kSumLoops<T, U>;
#endif
  return host::baseline::kSumLoops<T, U>;
}

// A token's row of an operand.
template <class E>
E* of_token(const Call& call, Operand operand, int64_t token) {
  const OperandView& view = call.operands[operand];
  return static_cast<E*>(view.data) + token * view.strides[0];
}

template <class T, class U>
void sum_chunk(const Call& call, int64_t token, int64_t column, int64_t count) {
  const Fields& f = call.fields<Fields>();
  const OperandView& input = call.operands[kInput];
  const auto* const destination = of_token<const std::int32_t>(call, kDestination, token);
  const auto* const weight = of_token<const float>(call, kWeight, token);
  const auto* const rows = static_cast<const T*>(input.data) + column;
  const routing::PairRows inputs(f.top_k(), input, 1);
  const Loops& loops = sum_loops<T, U>();
  float sums[kChunk] = {};
  for (int64_t rank = 0; rank < f.top_k(); ++rank) {
    const int64_t row = destination[rank];
    if (row < 0 || row >= f.pairs()) continue;
    loops.add_row(rows + inputs.offset(row), count, weight[rank], sums);
  }
  loops.narrow(sums, count, of_token<U>(call, kOutput, token) + column);
}

template <DType kInputType, DType kOutputType>
Status compute(const Call& call, const Stream& stream) {
  const Fields& f = call.fields<Fields>();
  const int64_t chunks = (f.width() + kChunk - 1) / kChunk;
  host::parallel_for(stream.threads, f.tokens() * chunks, kGrain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t column = i % chunks * kChunk;
      sum_chunk<math::Stored<kInputType>, math::Stored<kOutputType>>(
          call, i / chunks, column, std::min(kChunk, f.width() - column));
    }
  });
  return Status::success();
}

template <DType kInputType, DType kOutputType>
constexpr Kernel make_kernel() {
  return {.op = "moe_unpermute",
          .body = "rows",
          .dtypes = kDTypes<kInputType, kOutputType>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kInputType, kOutputType>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kInputType, kOutputType>>};
}

template <DType kInputType>
constexpr std::array kOfInput = {make_kernel<kInputType, DType::Float16>(),
                                 make_kernel<kInputType, DType::BFloat16>(),
                                 make_kernel<kInputType, DType::Float32>()};

constexpr auto kKernels =
    joined(kOfInput<DType::Float16>, kOfInput<DType::BFloat16>, kOfInput<DType::Float32>);

}  // namespace
}  // namespace planq::moe_unpermute

PLANQ_KERNELS(moe_unpermute, host, kKernels);
