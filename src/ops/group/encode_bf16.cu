#include "ops/group/encode.cuh"

PLANQ_GROUP_ENCODING(planq::math::Bfloat16);
