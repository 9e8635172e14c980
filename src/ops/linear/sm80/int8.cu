// Integer gemms on any GPU from sm_80 on, without an addend.
#include "ops/linear/sm80/int8_launch.cuh"

namespace planq::linear {

Status preload_sm80() { return int8_sm80::preload_tiles<NoAddend>(); }
Status launch_sm80(const Gemm& gemm, const Device& device, Bound& bound) {
  return int8_sm80::launch_any<NoAddend>(gemm, device, bound);
}

Status preload_few_rows() { return int8_sm80::preload_few_rows<NoAddend>(); }
Status launch_few_rows(const Gemm& gemm, const Device& device, Bound& bound) {
  return int8_sm80::launch_few_rows<NoAddend>(gemm, device, bound);
}

}  // namespace planq::linear
