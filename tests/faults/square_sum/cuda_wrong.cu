#include "../cuda.cuh"
#include "wrong.h"

namespace planq::square_sum {
namespace {

struct Zero : Squares {
  using Squares::Squares;
  __device__ void operator()(std::int64_t) const { store(0); }
};

// Threads add to one number, in the order in which they come.
struct AtomicSum : Squares {
  static constexpr std::string_view kName = "wrong_float_atomic";

  AtomicSum(const Call& call, int workers) : Squares(call, workers) { count = elements; }

  __device__ void operator()(std::int64_t i) const { atomicAdd(output, element(i) * element(i)); }
};

Status prepare_atomic(const Descriptor& descriptor, const Device& device, State& state) {
  const Status status = wrong::prepare<Zero>(descriptor, device, state);
  return status.ok() ? wrong::prepare<AtomicSum>(descriptor, device, state) : status;
}
Status bind_atomic(const Call& call, Bound& bound) {
  const Status status = wrong::bind<Zero>(call, bound);
  return status.ok() ? wrong::bind<AtomicSum>(call, bound) : status;
}

constexpr Kernel atomically(Kernel kernel) {
  kernel.prepare = prepare_atomic;
  kernel.bind = bind_atomic;
  return kernel;
}

constexpr Kernel kKernels[] = {wrong::on_cuda<Contracted>(kWrong),
                               wrong::on_cuda<TreeByWorkers>(kWrong),
                               wrong::on_cuda<UnwrittenCount>(with_count(kWrong)),
                               atomically(wrong::on_cuda<AtomicSum>(kWrong))};

}  // namespace
}  // namespace planq::square_sum

PLANQ_KERNELS(square_sum, cuda_wrong, kKernels);
