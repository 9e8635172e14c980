// In the place of src/cuda/estimates.cuh.
#pragma once

#include <cmath>

namespace planq::cuda {

inline float inverse_root_estimate(float x) { return 1 / std::sqrt(x); }
inline float inverse_estimate(float x) { return 1 / x; }

}  // namespace planq::cuda
