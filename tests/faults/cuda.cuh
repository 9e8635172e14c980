// Faults as CUDA kernels: a thread for each call of the functor.
#pragma once

#include "cuda/launch.cuh"
#include "wrong.h"

namespace planq::wrong {

inline constexpr int kThreads = 128;

template <class Fault>
__global__ void __launch_bounds__(kThreads) each(const Fault fault) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < fault.count) fault(i);
}

inline cuda::Grid grid_of(std::int64_t count) {
  return {cuda::ceil_div(count, kThreads), dim3(kThreads)};
}

template <class Fault>
Status prepare(const Descriptor&, const Device&, State&) {
  return cuda::preload(each<Fault>);
}

template <class Fault>
Status bind(const Call& call, Bound& bound) {
  const Fault fault(call, call.device.multiprocessors);
  if (fault.count == 0) return Status::success();
  return cuda::launch(each<Fault>, grid_of(fault.count), fault, bound);
}

template <class Fault>
constexpr Kernel on_cuda(Kernel kernel) {
  kernel.body = Fault::kName;
  kernel.backend = Backend::Cuda;
  kernel.arch = {80, kLastArch};
  kernel.prepare = prepare<Fault>;
  kernel.bind = bind<Fault>;
  return kernel;
}

}  // namespace planq::wrong
