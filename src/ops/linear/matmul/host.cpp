// matmul on the host.
#include "core/rejects.h"
#include "host/elementwise.h"
#include "ops/linear/matmul/desc.h"
#include "ops/linear/product_host.h"

namespace planq::matmul {
namespace {

Status compute(const Call& call, const Stream& stream) {
  host::multiply_floats(product_of(call), call.fields<Fields>().accumulation, stream.threads);
  return Status::success();
}

template <Accumulation kAccumulation, DType kIn, DType kOut>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (reason.accepted()) reason = expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::Feature, "accumulation", kAccumulation, f.accumulation);
}

template <Accumulation kAccumulation, DType kIn, DType kOut>
constexpr Kernel make_kernel() {
  return {.op = "matmul",
          .method = name_of(kAccumulation),
          .dtypes = kDTypes<kIn, kOut>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee<kAccumulation, kIn>,
          .rejects = rejects<kAccumulation, kIn, kOut>,
          .workspace = host::no_workspace,
          .prepare = host::nothing_to_prepare,
          .bind = host::bind<compute>};
}

template <Accumulation kAccumulation, DType kIn>
constexpr std::array<Kernel, 3> kernels_of() {
  return {make_kernel<kAccumulation, kIn, DType::Float16>(),
          make_kernel<kAccumulation, kIn, DType::BFloat16>(),
          make_kernel<kAccumulation, kIn, DType::Float32>()};
}

constexpr auto kKernels = joined(kernels_of<Accumulation::TensorSm90, DType::Float16>(),
                                 kernels_of<Accumulation::TensorSm90, DType::BFloat16>(),
                                 kernels_of<Accumulation::Lanes, DType::Float16>(),
                                 kernels_of<Accumulation::Lanes, DType::BFloat16>());

}  // namespace
}  // namespace planq::matmul

PLANQ_KERNELS(matmul, host, kKernels);
