// Numbers that one instruction estimates, for algorithms that correct them.
#pragma once

namespace planq::cuda {

// 1 / root(x) of a normal x above 0, to less than two units in the last place.
__device__ __forceinline__ float inverse_root_estimate(float x) {
  float estimate;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
  return estimate;
}

// 1 / x of a normal x, whose inverse is normal, to less than two units in the last place.
__device__ __forceinline__ float inverse_estimate(float x) {
  float estimate;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
  return estimate;
}

}  // namespace planq::cuda
