// The kernels of sm90/groups_tiles.cuh that multiply bfloat16 numbers of 8-bit codes.
#include "ops/linear/sm90/groups_tiles_launch.cuh"

namespace planq::linear::sm90::groups::tiles {

Status preload_bytes_bf16(const CodeKind& kind) {
  return is_fp8(kind.dtype) ? preload_codes<math::Bfloat16, RegisterCodes::Floats>(kind)
                            : preload_codes<math::Bfloat16, RegisterCodes::Bytes>(kind);
}
Status launch_bytes_bf16(const CodeKind& kind, const Launch& launch, Bound& bound) {
  return is_fp8(kind.dtype)
             ? launch_codes<math::Bfloat16, RegisterCodes::Floats>(kind, launch, bound)
             : launch_codes<math::Bfloat16, RegisterCodes::Bytes>(kind, launch, bound);
}

}  // namespace planq::linear::sm90::groups::tiles
