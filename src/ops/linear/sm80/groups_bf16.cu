// The kernels of sm80/groups_tiles.cuh for bfloat16.
#include "ops/linear/sm80/groups_launch.cuh"

namespace planq::linear::groups80 {

Status preload_bf16() { return preload_type<math::Bfloat16>(); }
Status launch_bf16(const GroupArgs& args, const Device& device, Bound& bound) {
  return launch_type<math::Bfloat16>(args, device, bound);
}

}  // namespace planq::linear::groups80
