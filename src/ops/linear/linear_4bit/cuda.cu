// linear_4bit on CUDA: any product on any GPU, by the functions that the host has too.
#include "core/rejects.h"
#include "ops/linear/float_guarantee.h"
#include "ops/linear/float_launch.cuh"
#include "ops/linear/linear_4bit/desc.h"

namespace planq::linear_4bit {
namespace {

template <Accumulation kAccumulation, DType kIn>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::Feature, "accumulation", kAccumulation, f.accumulation);
}

std::size_t no_workspace(const Descriptor&, const Device&) { return 0; }
Status prepare(const Descriptor& descriptor, const Device&, State&) {
  return linear::preload_coded(descriptor.as<Fields>().weight_dtype);
}

Status bind(const Call& call, Bound& bound) {
  const linear::WeightCodes codes = codes_of(call);
  return linear::launch_coded(product_of(call, codes), call.fields<Fields>().accumulation, bound);
}

template <Accumulation kAccumulation, DType kIn>
constexpr Kernel make_kernel() {
  return {.op = "linear_4bit",
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
                               make_kernel<Accumulation::Lanes, DType::BFloat16>(),
                               make_kernel<Accumulation::Lanes, DType::Float32>()};

}  // namespace
}  // namespace planq::linear_4bit

PLANQ_KERNELS(linear_4bit, cuda, kKernels);
