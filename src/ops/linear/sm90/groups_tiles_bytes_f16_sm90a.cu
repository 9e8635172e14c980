// The kernels of sm90/groups_tiles.cuh that multiply float16 numbers of 8-bit codes.
#include "ops/linear/sm90/groups_tiles_launch.cuh"

namespace planq::linear::sm90::groups::tiles {

Status preload_bytes_f16(const CodeKind& kind) {
  return is_fp8(kind.dtype) ? preload_codes<math::Half, RegisterCodes::Floats>(kind)
                            : preload_codes<math::Half, RegisterCodes::Bytes>(kind);
}
Status launch_bytes_f16(const CodeKind& kind, const Launch& launch, Bound& bound) {
  return is_fp8(kind.dtype) ? launch_codes<math::Half, RegisterCodes::Floats>(kind, launch, bound)
                            : launch_codes<math::Half, RegisterCodes::Bytes>(kind, launch, bound);
}

}  // namespace planq::linear::sm90::groups::tiles
