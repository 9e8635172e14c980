// quantize_backward on CUDA.
#pragma once

#include "cuda/element.cuh"
#include "ops/affine/elementwise/gradient_kernels.h"
#include "ops/affine/elementwise/straight_through.cuh"
#include "ops/affine/quantize_backward/desc.h"

namespace planq::quantize_backward {
namespace {

using Launch = cuda::StraightThroughLaunch<cuda::Element, true, Fields>;

constexpr Kernel kKernels[] = {
    gradient_kernel<Gradient, Backend::Cuda, cuda::kElement>(Launch::prepare, Launch::bind)};

}  // namespace

}  // namespace planq::quantize_backward
