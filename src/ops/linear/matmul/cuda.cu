// matmul on CUDA: any product on any GPU, by the functions that the host has too.
#include "core/rejects.h"
#include "ops/linear/float_guarantee.h"
#include "ops/linear/float_launch.cuh"
#include "ops/linear/matmul/desc.h"

namespace planq::matmul {
namespace {

template <Accumulation kAccumulation, DType kIn>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::Feature, "accumulation", kAccumulation, f.accumulation);
}

std::size_t no_workspace(const Descriptor&, const Device&) { return 0; }
Status prepare(const Descriptor&, const Device&, State&) { return linear::preload_floats(); }

Status bind(const Call& call, Bound& bound) {
  return linear::launch_floats(product_of(call), call.fields<Fields>().accumulation, bound);
}

template <Accumulation kAccumulation, DType kIn>
constexpr Kernel make_kernel() {
  return {.op = "matmul",
          .method = name_of(kAccumulation),
          .dtypes = kDTypes<kIn>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 100,
          .guarantee = linear::kFloatGuarantee<kAccumulation, kIn>,
          .rejects = rejects<kAccumulation, kIn>,
          .workspace = no_workspace,
          .prepare = prepare,
          .bind = bind};
}

constexpr Kernel kKernels[] = {make_kernel<Accumulation::TensorSm90, DType::Float16>(),
                               make_kernel<Accumulation::TensorSm90, DType::BFloat16>(),
                               make_kernel<Accumulation::Lanes, DType::Float16>(),
                               make_kernel<Accumulation::Lanes, DType::BFloat16>()};

}  // namespace
}  // namespace planq::matmul

PLANQ_KERNELS(matmul, cuda, kKernels);
