#include "../cuda.cuh"
#include "wrong.h"

namespace planq::multiply {
namespace {

struct Right : Multiplied {
  using Multiplied::Multiplied;

  __device__ void operator()(std::int64_t i) const {
    const ElementOffsets at = wrong::element_at(layout, i);
    output[at.at[kOutput]] = product(at);
  }
};

// Right, and on a stream that the caller did not give.
struct DefaultStreamStep {
  Right right;

  Status launch(const Stream& given) const {
    Stream stream = given;
    stream.handle = nullptr;
    return cuda::launch_now(wrong::each<Right>, wrong::grid_of(right.count), right, stream);
  }
};

Status bind_default_stream(const Call& call, Bound& bound) {
  const Right right(call, 0);
  return right.count == 0 ? Status::success() : bound.add(DefaultStreamStep{right});
}

constexpr Kernel on_default_stream(Kernel kernel) {
  kernel.body = "wrong_default_stream";
  kernel.bind = bind_default_stream;
  kernel.prepare = wrong::prepare<Right>;
  return kernel;
}

constexpr Kernel kKernels[] = {
    wrong::on_cuda<FlushToZero>(kWrong), wrong::on_cuda<UnwrittenByte>(kWrong),
    wrong::on_cuda<PastTail>(kWrong), wrong::on_cuda<OneBitByAlignment>(kWrong),
    on_default_stream(wrong::on_cuda<FlushToZero>(kWrong))};

}  // namespace
}  // namespace planq::multiply

PLANQ_KERNELS(multiply, cuda_wrong, kKernels);
