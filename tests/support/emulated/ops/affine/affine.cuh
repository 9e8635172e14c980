// In the place of src/ops/affine/affine.cuh.
#pragma once

#include "cuda/pairs.cuh"
#include "ops/affine/affine.h"
