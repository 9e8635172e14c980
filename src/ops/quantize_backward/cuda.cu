// quantize_backward on CUDA.
#include "core/gradient_rows.h"
#include "cuda/slice.cuh"
#include "cuda/straight_through.cuh"
#include "ops/quantize_backward/desc.h"

namespace planq::quantize_backward {
namespace {

using Row = cuda::StraightThroughRow<cuda::Slice, true, Fields>;

constexpr Kernel kRows[] = {
    gradient_row<Gradient, Backend::Cuda, cuda::kSlice>(Row::prepare, Row::launch)};

}  // namespace

extern const std::span<const Kernel> PLANQ_CUDA_ROWS;
const std::span<const Kernel> PLANQ_CUDA_ROWS = kRows;

}  // namespace planq::quantize_backward
