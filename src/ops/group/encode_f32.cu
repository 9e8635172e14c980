#include "ops/group/encode.cuh"

PLANQ_GROUP_ENCODING(float);
