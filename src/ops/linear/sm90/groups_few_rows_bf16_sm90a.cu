// The kernels of sm90/groups_few_rows.cuh that multiply bfloat16.
#include "ops/linear/sm90/groups_few_rows_launch.cuh"

namespace planq::linear::sm90::groups::few_rows {

Status preload_bf16(const CodeKind& kind) { return preload_type<math::Bfloat16>(kind); }
Status launch_bf16(const Gemm& gemm, const Device& device, Bound& bound, bool& launched) {
  return launch_type<math::Bfloat16>(gemm, device, bound, launched);
}

}  // namespace planq::linear::sm90::groups::few_rows
