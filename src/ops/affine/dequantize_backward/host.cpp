// dequantize_backward on the host.
#include <array>
#include <cstdint>

#include "host/bind.h"
#include "math/formats.h"
#include "ops/affine/dequantize_backward/desc.h"
#include "ops/affine/elementwise/gradient_kernels.h"
#include "ops/affine/elementwise/host.h"

namespace planq::dequantize_backward {
namespace {

using math::Compute;
using math::Stored;

template <class T>
Status compute(const Call& call, const Stream& stream) {
  using C = Compute<T>;
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const auto& loops = host::affine_loops<T>();
  const T* grad_output = static_cast<const T*>(operands[kGradOutput].data);
  T* grad_input = static_cast<T*>(operands[kGradInput].data);
  const host::GivenOperands given = {operands[kScale].data, nullptr, f.scale_dtype};
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kGradOutput]}, {&operands[kGradInput]}, {}, {&operands[kScale]}, {}};
  host::for_each_chunk<C>(
      stream.threads, f.shape, f.scope, layout, given, math::AffineSpec<C>{},
      [&](host::Chunk<C>& s, const host::ChunkPlace& place, std::int64_t count) {
        loops.widen(grad_output + place.at.at[0], count, s.value);
        for (std::int64_t i = 0; i < count; ++i) s.value[i] *= s.scale[i];
        loops.narrow(s.value, count, grad_input + place.at.at[1]);
      });
  return Status::success();
}

template <DType kType>
constexpr Kernel make_kernel() {
  return gradient_kernel<Gradient, Backend::Host, kType>(nothing_to_prepare,
                                                         host::bind<compute<Stored<kType>>>);
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>(), make_kernel<DType::Float64>()};

}  // namespace

}  // namespace planq::dequantize_backward

PLANQ_KERNELS(dequantize_backward, host, kKernels);
