// fake_quantize_backward on the host.
#include <cstdint>

#include "host/bind.h"
#include "math/formats.h"
#include "ops/affine/elementwise/gradient_kernels.h"
#include "ops/affine/elementwise/straight_through_host.h"
#include "ops/affine/fake_quantize_backward/desc.h"

namespace planq::fake_quantize_backward {
namespace {

using math::Stored;

template <class T>
Status compute(const Call& call, const Stream& stream) {
  using C = math::Compute<T>;
  return host::pass_straight_through<T>(
      call.fields<Fields>(), call.operands, stream,
      [](const host::Chunk<C>& s, std::int64_t count, const math::AffineSpec<C>&,
         const T* grad_output, T* grad_input) {
        // Passing gradients keep their bits.
        for (std::int64_t i = 0; i < count; ++i) grad_input[i] = s.byte[i] ? grad_output[i] : T{};
      });
}

template <DType kType>
constexpr Kernel make_kernel() {
  return gradient_kernel<Gradient, Backend::Host, kType>(nothing_to_prepare,
                                                         host::bind<compute<Stored<kType>>>);
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>(), make_kernel<DType::Float64>()};

}  // namespace

}  // namespace planq::fake_quantize_backward

PLANQ_KERNELS(fake_quantize_backward, host, kKernels);
