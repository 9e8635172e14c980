// The element type that a file instantiates an operator's kernels for. The file names it before it
// includes the operator's cuda.cuh:
//
//     #define PLANQ_ELEMENT Float16
#pragma once

#include <cstddef>

#include "core/registry.h"
#include "math/formats.h"

namespace planq::cuda {

constexpr DType kElement = DType::PLANQ_ELEMENT;
using Element = math::Stored<kElement>;

}  // namespace planq::cuda
