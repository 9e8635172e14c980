// gguf_dequantize on the host: block by block.

#include <cstdint>

#include "host/bind.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/gguf/block_rows.h"
#include "ops/gguf/blocks.h"
#include "ops/gguf/gguf_dequantize/desc.h"

namespace planq::gguf_dequantize {
namespace {

using std::int64_t;

// Elements that are worth waking a thread for.
constexpr int64_t kGrain = 1 << 14;

template <class U, class B>
void dequantize_block(gguf::Bytes block, U* output) {
  for (int first = 0; first < B::kElements; first += gguf::kRun) {
    const gguf::Run<B> run(block, first);
    for (int e = first; e < first + gguf::kRun; ++e)
      output[e] = math::narrow<U>(run.value(block, e));
  }
}

template <DType kOutputType>
Status compute(const Call& call, const Stream& stream) {
  using U = math::Stored<kOutputType>;
  const Fields& f = call.fields<Fields>();
  const gguf::BlockRows rows(f.shape, f.type, call.operands[kInput], call.operands[kOutput]);
  const auto* const input = static_cast<gguf::Bytes>(call.operands[kInput].data);
  auto* const output = static_cast<U*>(call.operands[kOutput].data);
  return gguf::by_type(f.type, [&](auto type) {
    using B = decltype(type);
    host::parallel_for(stream.threads, rows.space.size() * rows.blocks, kGrain / B::kElements,
                       [&](int64_t first, int64_t last) {
                         for (int64_t i = first; i < last; ++i) {
                           const auto at = rows.space.offsets(i / rows.blocks);
                           const int64_t own = i % rows.blocks;
                           dequantize_block<U, B>(
                               input + at.at[gguf::BlockRows::kBlocks] + own * B::kBytes,
                               output + at.at[gguf::BlockRows::kNumbers] + own * B::kElements);
                         }
                       });
    return Status::success();
  });
}

template <DType kOutputType>
constexpr Kernel kBlocks =
    kernel<kOutputType, Backend::Host>(nothing_to_prepare, host::bind<compute<kOutputType>>);

constexpr Kernel kKernels[] = {kBlocks<DType::Float16>, kBlocks<DType::BFloat16>,
                               kBlocks<DType::Float32>};

}  // namespace
}  // namespace planq::gguf_dequantize

PLANQ_KERNELS(gguf_dequantize, host, kKernels);
