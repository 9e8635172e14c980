// Launches of the kernels of linear_gguf for codes, by the type of the blocks. All give the same
// bits. Of the gemm's weights, a row's stride counts bytes.
#pragma once

#include "core/bound.h"
#include "core/device.h"
#include "ops/linear/gemm.h"

namespace planq::linear_gguf {

// Load the kernels. B: a gguf::Block.
template <class B>
Status preload_few_rows(const Device& device);
template <class B>
Status preload_many_rows(const Device& device);

// For few rows of the input; takes any number.
template <class B>
Status launch_few_rows(const linear::Gemm& gemm, const Device& device, Bound& bound);

// For many rows of the input.
template <class B>
Status launch_many_rows(const linear::Gemm& gemm, const Device& device, Bound& bound);
// Whether there are so many, and the device has the shared memory.
template <class B>
bool takes_many_rows(const linear::Gemm& gemm, const Device& device);

}  // namespace planq::linear_gguf
