// unary on the host: a chunk is widened, goes through the function's loop and is narrowed.

#include <array>
#include <cstdint>

#include "core/sku.h"
#include "host/bind.h"
#include "host/element_chunks.h"
#include "host/functions.h"
#include "host/simd.h"
#include "math/formats.h"
#include "ops/elementwise/unary/desc.h"

namespace planq::unary {

struct Loops {
  void (*widen)(const void* from, std::int64_t count, float* to);
  void (*narrow)(const float* from, std::int64_t count, void* to);
};

}  // namespace planq::unary

#define PLANQ_LOOPS "ops/elementwise/unary/loops.h"
#include "host/instruction_sets.h"

namespace planq::unary {
namespace {

template <class T, class U>
const Loops& unary_loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kUnaryLoops<T, U>;
  if (level == host::Level::Avx2) return host::avx2::kUnaryLoops<T, U>;
#endif
  return host::baseline::kUnaryLoops<T, U>;
}

template <DType kInputType, DType kOutputType>
Status compute(const Call& call, const Stream& stream) {
  using T = math::Stored<kInputType>;
  using U = math::Stored<kOutputType>;
  const auto* const input = static_cast<const T*>(call.operands[kInput].data);
  auto* const output = static_cast<U*>(call.operands[kOutput].data);
  const host::FunctionLoop function =
      host::function_loop(function_of(call.fields<Fields>().function));
  const Loops& loops = unary_loops<T, U>();
  host::each_chunk(layout_of(call), stream.threads,
                   [&](const ElementOffsets& row, std::int64_t column, std::int64_t count) {
                     float values[host::kElementChunk];
                     loops.widen(input + row.at[kInput] + column, count, values);
                     function(values, count);
                     loops.narrow(values, count, output + row.at[kOutput] + column);
                   });
  return Status::success();
}

template <DType kInputType, DType kOutputType>
constexpr Kernel kUnary = kernel<kInputType, kOutputType, Backend::Host>(
    nothing_to_prepare, host::bind<compute<kInputType, kOutputType>>);

template <DType kInputType>
constexpr std::array kUnaryOfInput = {kUnary<kInputType, DType::Float16>,
                                      kUnary<kInputType, DType::BFloat16>,
                                      kUnary<kInputType, DType::Float32>};

constexpr auto kKernels = joined(kUnaryOfInput<DType::Float16>, kUnaryOfInput<DType::BFloat16>,
                                 kUnaryOfInput<DType::Float32>);

}  // namespace
}  // namespace planq::unary

PLANQ_KERNELS(unary, host, kKernels);
