// layer_norm on CUDA: see ops/norm/rows.cuh. The file that includes this names the type of the
// input: see cuda/element.cuh.
#pragma once

#include "ops/norm/layer_norm/desc.h"
#include "ops/norm/rows.cuh"

namespace planq::layer_norm {
namespace {

constexpr auto kKernels = norm::kernels_of<Fields, norm_of, true, kOutput>("layer_norm");

}  // namespace
}  // namespace planq::layer_norm
