// The SIMT kernels (simt/gemm.cuh) for 16-bit numbers and for 8-bit floating codes.
#include "ops/linear/simt/gemm.cuh"

namespace planq::linear {
namespace {

template <class T>
Status preload_type() {
  PLANQ_TRY(cuda::preload(compute_tensor_sums<NumberOperands<T>>));
  return cuda::preload(compute_lane_sums<NumberOperands<T>>);
}

template <class T>
Status launch_type(const FloatArgs& args, Accumulation accumulation, Bound& bound) {
  return accumulation == Accumulation::Lanes ? launch_lane_sums<NumberOperands<T>>(args, bound)
                                             : launch_tensor_sums<NumberOperands<T>>(args, bound);
}

}  // namespace

Status preload_floats() {
  PLANQ_TRY(preload_type<math::Half>());
  return preload_type<math::Bfloat16>();
}
Status preload_float8s() { return cuda::preload(compute_tensor_sums<Float8Operands>); }

Status launch_floats(const Gemm& gemm, Accumulation accumulation, Bound& bound) {
  if (gemm.empty()) return Status::success();
  const FloatArgs args = float_args(gemm);
  switch (gemm.input.dtype) {
    case DType::Float16:
      return launch_type<math::Half>(args, accumulation, bound);
    case DType::BFloat16:
      return launch_type<math::Bfloat16>(args, accumulation, bound);
    default:
      return launch_tensor_sums<Float8Operands>(args, bound);
  }
}

}  // namespace planq::linear
