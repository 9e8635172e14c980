// fake_quantize_backward on CUDA.
#include "cuda/slice.cuh"
#include "ops/affine/fake_quantize_backward/desc.h"
#include "ops/affine/gradient_kernels.h"
#include "ops/affine/straight_through.cuh"

namespace planq::fake_quantize_backward {
namespace {

using Row = cuda::StraightThroughRow<cuda::Slice, false, Fields>;

constexpr Kernel kRows[] = {
    gradient_row<Gradient, Backend::Cuda, cuda::kSlice>(Row::prepare, Row::bind)};

}  // namespace

extern const std::span<const Kernel> PLANQ_CUDA_ROWS;
const std::span<const Kernel> PLANQ_CUDA_ROWS = kRows;

}  // namespace planq::fake_quantize_backward
