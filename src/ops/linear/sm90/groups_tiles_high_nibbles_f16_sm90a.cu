// The kernels of sm90/groups_tiles.cuh that multiply float16 numbers of integers of 4 bits, of
// which the upper one of a byte comes first.
#include "ops/linear/sm90/groups_tiles_launch.cuh"

namespace planq::linear::sm90::groups::tiles {

Status preload_high_nibbles_f16(const CodeKind& kind) {
  return preload_codes<math::Half, RegisterCodes::Nibbles, true>(kind);
}
Status launch_high_nibbles_f16(const CodeKind& kind, const Launch& launch, Bound& bound) {
  return launch_codes<math::Half, RegisterCodes::Nibbles, true>(kind, launch, bound);
}

}  // namespace planq::linear::sm90::groups::tiles
