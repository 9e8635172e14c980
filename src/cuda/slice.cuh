// An operator's kernels are compiled once for each float type, chosen by PLANQ_SLICE: its stored
// type, its name, and the name of the table that holds its rows.
#pragma once

#include <cstddef>

#include "core/registry.h"
#include "math/codec.h"

namespace planq::cuda {

#if PLANQ_SLICE == 0
using Slice = math::Half;
inline constexpr DType kSlice = DType::Float16;
#elif PLANQ_SLICE == 1
using Slice = math::Bfloat16;
inline constexpr DType kSlice = DType::BFloat16;
#elif PLANQ_SLICE == 2
using Slice = float;
inline constexpr DType kSlice = DType::Float32;
#else
using Slice = double;
inline constexpr DType kSlice = DType::Float64;
#endif

#define PLANQ_JOIN_NAMES(a, b) a##b
#define PLANQ_SLICE_NAME(slice) PLANQ_JOIN_NAMES(kCudaRows, slice)
#define PLANQ_CUDA_ROWS PLANQ_SLICE_NAME(PLANQ_SLICE)

inline std::size_t no_workspace(const Descriptor&, const Device&) { return 0; }

}  // namespace planq::cuda
