// linear_fp8 on CUDA: any product on any GPU, by the functions that the host has too.
#include "core/rejects.h"
#include "ops/linear/float_guarantee.h"
#include "ops/linear/float_launch.cuh"
#include "ops/linear/linear_fp8/desc.h"

namespace planq::linear_fp8 {
namespace {

template <DType kIn>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kIn, descriptor.as<Fields>().input_dtype);
}

std::size_t no_workspace(const Descriptor&, const Device&) { return 0; }
Status prepare(const Descriptor&, const Device&, State&) { return linear::preload_float8s(); }

Status bind(const Call& call, Bound& bound) {
  return linear::launch_floats(product_of(call), Accumulation::TensorSm90, bound);
}

template <DType kIn>
constexpr Kernel make_kernel() {
  return {.op = "linear_fp8",
          .method = name_of(Accumulation::TensorSm90),
          .dtypes = kDTypes<kIn>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 100,
          .guarantee = linear::kFloatGuarantee<Accumulation::TensorSm90, kIn>,
          .rejects = rejects<kIn>,
          .workspace = no_workspace,
          .prepare = prepare,
          .bind = bind};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float8E4M3FN>(),
                               make_kernel<DType::Float8E5M2>()};

}  // namespace
}  // namespace planq::linear_fp8

PLANQ_KERNELS(linear_fp8, cuda, kKernels);
