// Products on the host.
#pragma once

#include "ops/linear/gemm.h"
#include "ops/linear/vocabulary.h"

namespace planq::host {

// Computes a product of codes, its epilogue included.
void multiply(const linear::Gemm& gemm, int threads);

// The same of floating factors, with sums in float32 of an order that has a name: LANES or
// TENSOR_SM90.
void multiply_floats(const linear::Gemm& gemm, Accumulation accumulation, int threads);

}  // namespace planq::host
