// The kernels of sm90/groups_few_rows.cuh that multiply float16.
#include "ops/linear/sm90/groups_few_rows_launch.cuh"

namespace planq::linear::sm90::groups::few_rows {

Status preload_f16(const CodeKind& kind) { return preload_type<math::Half>(kind); }
Status launch_f16(const Gemm& gemm, const Device& device, Bound& bound, bool& launched) {
  return launch_type<math::Half>(gemm, device, bound, launched);
}

}  // namespace planq::linear::sm90::groups::few_rows
