// The kernels of sm90/groups_tiles.cuh that multiply float16 numbers of codes of a table.
#include "ops/linear/sm90/groups_tiles_launch.cuh"

namespace planq::linear::sm90::groups::tiles {

Status preload_table_f16(const CodeKind& kind) {
  return preload_codes<math::Half, RegisterCodes::Table>(kind);
}
Status launch_table_f16(const CodeKind& kind, const Launch& launch, Bound& bound) {
  return launch_codes<math::Half, RegisterCodes::Table>(kind, launch, bound);
}

}  // namespace planq::linear::sm90::groups::tiles
