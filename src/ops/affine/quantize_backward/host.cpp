// quantize_backward on the host.
#include <cstdint>

#include "host/bind.h"
#include "math/formats.h"
#include "ops/affine/elementwise/gradient_kernels.h"
#include "ops/affine/elementwise/straight_through_host.h"
#include "ops/affine/quantize_backward/desc.h"

namespace planq::quantize_backward {
namespace {

using math::Stored;

template <class T>
Status compute(const Call& call, const Stream& stream) {
  using C = math::Compute<T>;
  const auto& loops = host::affine_loops<T>();
  return host::pass_straight_through<T>(
      call.fields<Fields>(), call.operands, stream,
      [&loops](host::Chunk<C>& s, std::int64_t count, const math::AffineSpec<C>& spec,
               const T* grad_output, T* grad_input) {
        loops.widen(grad_output, count, s.other);
        for (std::int64_t i = 0; i < count; ++i) {
          const C g = math::quotient_of(s.other[i], s.segment(static_cast<int>(i)), spec.quotient);
          s.value[i] = s.byte[i] ? g : C{0};
        }
        loops.narrow(s.value, count, grad_input);
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

}  // namespace planq::quantize_backward

PLANQ_KERNELS(quantize_backward, host, kKernels);
