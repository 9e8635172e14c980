// fake_quantize_backward on CUDA.
#pragma once

#include "cuda/element.cuh"
#include "ops/affine/elementwise/gradient_kernels.h"
#include "ops/affine/elementwise/straight_through.cuh"
#include "ops/affine/fake_quantize_backward/desc.h"

namespace planq::fake_quantize_backward {
namespace {

using Launch = cuda::StraightThroughLaunch<cuda::Element, false, Fields>;

constexpr Kernel kKernels[] = {
    gradient_kernel<Gradient, Backend::Cuda, cuda::kElement>(Launch::prepare, Launch::bind)};

}  // namespace

}  // namespace planq::fake_quantize_backward
