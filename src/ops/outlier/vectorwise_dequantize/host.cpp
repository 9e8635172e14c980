// vectorwise_dequantize on the host.

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/sku.h"
#include "host/bind.h"
#include "math/formats.h"
#include "ops/outlier/vectorwise_dequantize/desc.h"
#include "ops/outlier/vectorwise_host.h"

namespace planq::vectorwise_dequantize {
namespace {

using math::Compute;
using math::Stored;

template <class T, class Code>
Status compute(const Call& call, const Stream& stream) {
  using C = Compute<T>;
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const auto* codes = static_cast<const Code*>(operands[kInput].data);
  T* output = static_cast<T*>(operands[kOutput].data);
  const auto& affine = host::affine_loops<T>();
  const auto& loops = host::vectorwise_loops<C>();
  const host::VectorwiseOperands<C> given = {
      &operands[kInput], &operands[kOutput], &operands[kScale],
      outlier::has_zero_point(f.form) ? &operands[kZeroPoint] : nullptr};
  host::for_each_vectorwise_chunk<C>(
      stream.threads, f.shape, scope_of(f), given,
      [&](host::VectorwiseChunk<C>& s, const std::array<std::int64_t, 2>& at, std::int64_t count) {
        std::copy_n(codes + at[0], count, s.code);
        loops.dequantize(f.form, s, count);
        affine.narrow(s.value, count, output + at[1]);
      });
  return Status::success();
}

template <DType kIn, DType kOut>
constexpr Kernel make_kernel() {
  using Code = std::conditional_t<kIn == DType::Int8, std::int8_t, std::uint8_t>;
  return {.op = "vectorwise_dequantize",
          .body = "elements",
          .dtypes = kDTypes<kIn, kOut>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = guarantee<kOut>(),
          .rejects = rejects<kIn, kOut>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<Stored<kOut>, Code>>};
}

template <DType kOut>
constexpr std::array<Kernel, 2> kernels_of() {
  return {make_kernel<DType::Int8, kOut>(), make_kernel<DType::UInt8, kOut>()};
}

constexpr auto kKernels = joined(kernels_of<DType::Float16>(), kernels_of<DType::BFloat16>(),
                                 kernels_of<DType::Float32>(), kernels_of<DType::Float64>());

}  // namespace

}  // namespace planq::vectorwise_dequantize

PLANQ_KERNELS(vectorwise_dequantize, host, kKernels);
