// activation on the host: a chunk of each side is widened, the gate's goes through the function's
// loop, and the product is narrowed.

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/sku.h"
#include "host/bind.h"
#include "host/element_chunks.h"
#include "host/simd.h"
#include "math/formats.h"
#include "ops/activation/activation/arithmetic.h"

namespace planq::activation {

struct Loops {
  // By the enumerators of ActivationFunction.
  void (*function[kNames<ActivationFunction>.size()])(float* values, std::int64_t count);
  void (*widen)(const void* from, std::int64_t count, float* to);
  void (*narrow)(const float* from, std::int64_t count, void* to);
  void (*multiply)(float* values, const float* others, std::int64_t count);
  void (*part)(const float* pairs, std::int64_t count, float* first, float* second);
};

}  // namespace planq::activation

#define PLANQ_LOOPS "ops/activation/activation/loops.h"
#include "host/instruction_sets.h"

namespace planq::activation {
namespace {

template <class T, class U>
const Loops& activation_loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kActivationLoops<T, U>;
  if (level == host::Level::Avx2) return host::avx2::kActivationLoops<T, U>;
#endif
  return host::baseline::kActivationLoops<T, U>;
}

template <DType kInputType, DType kOutputType>
Status compute(const Call& call, const Stream& stream) {
  using T = math::Stored<kInputType>;
  using U = math::Stored<kOutputType>;
  const Fields& f = call.fields<Fields>();
  const Sides sides(call);
  const auto* const gate = static_cast<const T*>(sides.gate.data);
  const auto* const up = static_cast<const T*>(sides.up.data);
  auto* const output = static_cast<U*>(call.operands[kOutput].data);
  const Loops& loops = activation_loops<T, U>();
  const auto function = loops.function[static_cast<std::size_t>(f.function)];
  host::each_chunk(sides.layout, stream.threads,
                   [&](const ElementOffsets& row, std::int64_t column, std::int64_t count) {
                     float values[host::kElementChunk], others[host::kElementChunk];
                     if (f.gated && !up) {
                       float pairs[2 * host::kElementChunk];
                       loops.widen(gate + row.at[kGateSide] + 2 * column, 2 * count, pairs);
                       loops.part(pairs, count, values, others);
                     } else {
                       loops.widen(gate + row.at[kGateSide] + column, count, values);
                       if (up) loops.widen(up + row.at[kUpSide] + column, count, others);
                     }
                     function(values, count);
                     if (f.gated) loops.multiply(values, others, count);
                     loops.narrow(values, count, output + row.at[kOutputSide] + column);
                   });
  return Status::success();
}

template <DType kInputType, DType kOutputType>
constexpr Kernel kActivation = kernel<kInputType, kOutputType, Backend::Host>(
    nothing_to_prepare, host::bind<compute<kInputType, kOutputType>>);

template <DType kInputType>
constexpr std::array kActivationOfInput = {kActivation<kInputType, DType::Float16>,
                                           kActivation<kInputType, DType::BFloat16>,
                                           kActivation<kInputType, DType::Float32>};

constexpr auto kKernels = joined(
    kActivationOfInput<DType::Float16>, kActivationOfInput<DType::BFloat16>,
    kActivationOfInput<DType::Float32>,
    affine::quantized_parts<Fields, Backend::Host, DType::Float16, DType::BFloat16, DType::Float32>(
        "activation"));

}  // namespace
}  // namespace planq::activation

PLANQ_KERNELS(activation, host, kKernels);
