// gguf_quantize on the host: some blocks at a time, in loops that are compiled for every
// instruction set.

#include <cstdint>
#include <cstring>

#include "host/bind.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/gguf/block_rows.h"
#include "ops/gguf/gguf_quantize/desc.h"
#include "ops/gguf/quantizers.h"

namespace planq::gguf_quantize {

// Units that are computed together.
constexpr int kLanes = 16;

}  // namespace planq::gguf_quantize

#define PLANQ_LOOPS "ops/gguf/gguf_quantize/loops.h"
#include "host/instruction_sets.h"

namespace planq::gguf_quantize {
namespace {

using std::int64_t;

// Elements that are worth waking a thread for.
constexpr int64_t kGrain = 1 << 13;

// Makes blocks that lie side by side of numbers that do.
using Quantize = void (*)(const void* from, int64_t blocks, std::uint8_t* to);

template <class T, GgufType kType>
Quantize quantize_function() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::quantize_blocks<T, kType>;
  if (level == host::Level::Avx2) return host::avx2::quantize_blocks<T, kType>;
#endif
  return host::baseline::quantize_blocks<T, kType>;
}

template <DType kInputType>
Status compute(const Call& call, const Stream& stream) {
  using T = math::Stored<kInputType>;
  const Fields& f = call.fields<Fields>();
  const gguf::BlockRows rows(f.shape, f.type, call.operands[kOutput], call.operands[kInput]);
  const auto* const input = static_cast<const T*>(call.operands[kInput].data);
  auto* const output = static_cast<std::uint8_t*>(call.operands[kOutput].data);
  const int elements = gguf::elements_of(f.type), bytes = gguf::bytes_of(f.type);
  const Quantize quantize = gguf::by_quantizer(
      f.type, [](auto type) { return quantize_function<T, decltype(type)::kType>(); });
  host::parallel_for(stream.threads, rows.space.size() * rows.blocks, kGrain / elements,
                     [&](int64_t first, int64_t last) {
                       while (first < last) {
                         const auto at = rows.space.offsets(first / rows.blocks);
                         const int64_t own = first % rows.blocks, rest = rows.blocks - own;
                         const int64_t count = rest < last - first ? rest : last - first;
                         quantize(input + at.at[gguf::BlockRows::kNumbers] + own * elements, count,
                                  output + at.at[gguf::BlockRows::kBlocks] + own * bytes);
                         first += count;
                       }
                     });
  return Status::success();
}

template <DType kInputType>
constexpr Kernel kBlocks =
    kernel<kInputType, Backend::Host>(nothing_to_prepare, host::bind<compute<kInputType>>);

constexpr Kernel kKernels[] = {kBlocks<DType::Float16>, kBlocks<DType::BFloat16>,
                               kBlocks<DType::Float32>};

}  // namespace
}  // namespace planq::gguf_quantize

PLANQ_KERNELS(gguf_quantize, host, kKernels);
