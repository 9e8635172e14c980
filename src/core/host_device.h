// One source for host and device: functions that both call.
#pragma once

#if defined(__CUDACC__)
#define PLANQ_HD __host__ __device__ __forceinline__
#else
#define PLANQ_HD inline __attribute__((always_inline))
#endif
