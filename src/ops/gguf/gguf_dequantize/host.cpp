// gguf_dequantize on the host: block by block, then the indices that name no row.

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "host/bind.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/gguf/blocks.h"
#include "ops/gguf/gguf_dequantize/rows.h"

namespace planq::gguf_dequantize {
namespace {

using std::int64_t;

// Elements, or indices, that are worth waking a thread for.
constexpr int64_t kGrain = 1 << 14;

template <class U, class B>
void dequantize_block(gguf::Bytes block, U* output) {
  for (int first = 0; first < B::kElements; first += gguf::kRun) {
    const gguf::Run<B> run(block, first);
    for (int eight = first; eight < first + gguf::kRun; eight += 8) {
      float values[8];
      run.eight_values(block, eight, values);
      for (int i = 0; i < 8; ++i) output[eight + i] = math::narrow<U>(values[i]);
    }
  }
}

// How many indices name no row.
void count_invalid(const Rows& rows, int threads, int64_t& invalid) {
  invalid = 0;
  host::parallel_for(threads, rows.size(), kGrain, [&](int64_t first, int64_t last) {
    int64_t own = 0;
    for (int64_t i = first; i < last; ++i)
      own += rows.has(rows.rows.space.offsets(i).at[gguf::BlockRows::kBlocks]) ? 0 : 1;
    std::atomic_ref(invalid).fetch_add(own, std::memory_order_relaxed);
  });
}

template <class U, class B>
void dequantize_rows(const Rows& rows, int threads, U* output) {
  const int64_t blocks = rows.rows.blocks;
  host::parallel_for(
      threads, rows.size() * blocks, kGrain / B::kElements, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const auto at = rows.rows.space.offsets(i / blocks);
          const gguf::Bytes row = rows.find(at.at[gguf::BlockRows::kBlocks]);
          const int64_t own = i % blocks;
          U* const to = output + at.at[gguf::BlockRows::kNumbers] + own * B::kElements;
          if (row == nullptr)
            std::fill_n(to, B::kElements, math::narrow<U>(0));
          else
            dequantize_block<U, B>(row + own * B::kBytes, to);
        }
      });
}

template <DType kOutputType>
Status compute(const Call& call, const Stream& stream) {
  using U = math::Stored<kOutputType>;
  const Rows rows(call);
  auto* const output = static_cast<U*>(call.operands[kOutput].data);
  gguf::by_type(call.fields<Fields>().type, [&](auto type) {
    dequantize_rows<U, decltype(type)>(rows, stream.threads, output);
  });
  if (auto* const invalid = static_cast<int64_t*>(call.operands[kInvalid].data))
    count_invalid(rows, stream.threads, *invalid);
  return Status::success();
}

template <DType kOutputType>
constexpr Kernel kBlocks =
    kernel<kOutputType, Backend::Host>(nothing_to_prepare, host::bind<compute<kOutputType>>);

constexpr Kernel kKernels[] = {kBlocks<DType::Float16>, kBlocks<DType::BFloat16>,
                               kBlocks<DType::Float32>};

}  // namespace
}  // namespace planq::gguf_dequantize

PLANQ_KERNELS(gguf_dequantize, host, kKernels);
