// norm on CUDA: one kernel for each input type, all of them sums_cuda.h.

#include "core/sku.h"
#include "ops/statistics/norm/desc.h"
#include "ops/statistics/sums_cuda.h"

namespace planq::norm {
namespace {

template <DType kType>
Status prepare(const Descriptor& descriptor, const Device&, State&) {
  return cuda::preload_measure<math::Stored<kType>>(measure_of(descriptor.as<Fields>().p));
}

template <DType kType>
Status bind(const Call& call, Bound& bound) {
  using T = math::Stored<kType>;
  using C = math::Compute<T>;
  const Fields& f = call.fields<Fields>();
  Scratch scratch(call.workspace);
  return cuda::launch_measure<T>(
      {measure_of(f.p), f.p == NormOrder::Two, call.device.arch}, call.operands[kInput], f.shape,
      cuda::book_tiles<C>(f.shape, scratch), static_cast<C*>(call.operands[kOutput].data), bound);
}

template <DType kType>
constexpr Kernel make_kernel() {
  return {
      .op = "norm",
      .method = "tree",
      .dtypes = kDTypes<kType, compute_dtype(kType)>,
      .revision = 1,
      .backend = Backend::Cuda,
      .arch = {80, kLastArch},
      .rank = 0,
      .guarantee = sum_guarantee<kType>(),
      .rejects = rejects_other_input<Fields, kType>,
      .workspace = cuda::tiles_workspace<Fields, math::Stored<kType>>,
      .prepare = prepare<kType>,
      .bind = bind<kType>,
  };
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>(), make_kernel<DType::Float64>()};

}  // namespace

}  // namespace planq::norm

PLANQ_KERNELS(norm, cuda, kKernels);
