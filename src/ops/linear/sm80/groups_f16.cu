// The kernels of sm80/groups_tiles.cuh for float16.
#include "ops/linear/sm80/groups_launch.cuh"

namespace planq::linear::groups80 {

Status preload_f16() { return preload_type<math::Half>(); }
Status launch_f16(const GroupArgs& args, const Device& device, Bound& bound) {
  return launch_type<math::Half>(args, device, bound);
}

}  // namespace planq::linear::groups80
