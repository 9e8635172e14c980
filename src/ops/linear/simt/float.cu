// Products of numbers of 16 bits, and of 8-bit floating codes, on any GPU.
#include "ops/linear/simt/gemm.cuh"

namespace planq::linear {
namespace {

template <class T>
Status preload_type() {
  PLANQ_TRY(cuda::preload(compute_tensor_sums<NumberSides<T>>));
  return cuda::preload(compute_lane_sums<NumberSides<T>>);
}

template <class T>
Status launch_type(const FloatArgs& args, Accumulation accumulation, Bound& bound) {
  return accumulation == Accumulation::Lanes ? launch_lane_sums<NumberSides<T>>(args, bound)
                                             : launch_tensor_sums<NumberSides<T>>(args, bound);
}

}  // namespace

Status preload_floats() {
  PLANQ_TRY(preload_type<math::Half>());
  return preload_type<math::Bfloat16>();
}
Status preload_float8s() { return cuda::preload(compute_tensor_sums<Float8Sides>); }

Status launch_floats(const Product& product, Accumulation accumulation, Bound& bound) {
  if (product.empty()) return Status::success();
  const FloatArgs args = float_args(product);
  switch (product.input.dtype) {
    case DType::Float16:
      return launch_type<math::Half>(args, accumulation, bound);
    case DType::BFloat16:
      return launch_type<math::Bfloat16>(args, accumulation, bound);
    default:
      return launch_tensor_sums<Float8Sides>(args, bound);
  }
}

}  // namespace planq::linear
