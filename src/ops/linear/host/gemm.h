// Gemms on the host, their epilogues included.
#pragma once

#include "ops/linear/gemm.h"
#include "ops/linear/vocabulary.h"

namespace planq::host {

// Of codes.
void multiply(const linear::Gemm& gemm, int threads);

// Of floating numbers. `accumulation`: Lanes or TensorSm90; GroupsSm90 of weights that are codes.
void multiply_floats(const linear::Gemm& gemm, Accumulation accumulation, int threads);

}  // namespace planq::host
