// quantize_backward on CUDA.
#include "cuda/slice.cuh"
#include "ops/affine/gradient_kernels.h"
#include "ops/affine/quantize_backward/desc.h"
#include "ops/affine/straight_through.cuh"

namespace planq::quantize_backward {
namespace {

using Row = cuda::StraightThroughRow<cuda::Slice, true, Fields>;

constexpr Kernel kRows[] = {
    gradient_row<Gradient, Backend::Cuda, cuda::kSlice>(Row::prepare, Row::bind)};

}  // namespace

extern const std::span<const Kernel> PLANQ_CUDA_ROWS;
const std::span<const Kernel> PLANQ_CUDA_ROWS = kRows;

}  // namespace planq::quantize_backward
