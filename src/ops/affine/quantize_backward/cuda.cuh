// quantize_backward on CUDA.
#pragma once

#include "cuda/element.cuh"
#include "ops/affine/gradient_kernels.h"
#include "ops/affine/quantize_backward/desc.h"
#include "ops/affine/straight_through.cuh"

namespace planq::quantize_backward {
namespace {

using Row = cuda::StraightThroughRow<cuda::Element, true, Fields>;

constexpr Kernel kRows[] = {
    gradient_row<Gradient, Backend::Cuda, cuda::kElement>(Row::prepare, Row::bind)};

}  // namespace

}  // namespace planq::quantize_backward
