// Integer gemms on any GPU from sm_80 on, with outliers.
#include "ops/linear/linear_llm_int8/launch.h"
#include "ops/linear/linear_llm_int8/sm80_addend.cuh"
#include "ops/linear/sm80/int8_launch.cuh"

namespace planq::linear_llm_int8 {

Status preload_sm80() { return int8_sm80::preload_tiles<OutlierAddend>(); }
Status launch_sm80(const Gemm& gemm, const Device& device, Bound& bound) {
  return int8_sm80::launch_any<OutlierAddend>(gemm, device, bound);
}

Status preload_few_rows() { return int8_sm80::preload_few_rows<OutlierAddend>(); }
Status launch_few_rows(const Gemm& gemm, const Device& device, Bound& bound) {
  return int8_sm80::launch_few_rows<OutlierAddend>(gemm, device, bound);
}

}  // namespace planq::linear_llm_int8
