// The kernels of sm90/groups_tiles.cuh that multiply bfloat16 numbers of integers of 4 bits.
#include "ops/linear/sm90/groups_tiles_launch.cuh"

namespace planq::linear::sm90::groups::tiles {

Status preload_nibbles_bf16(const CodeKind& kind) {
  return preload_codes<math::Bfloat16, RegisterCodes::Nibbles>(kind);
}
Status launch_nibbles_bf16(const CodeKind& kind, const Launch& launch, Bound& bound) {
  return launch_codes<math::Bfloat16, RegisterCodes::Nibbles>(kind, launch, bound);
}

}  // namespace planq::linear::sm90::groups::tiles
