// fake_quantize_backward on CUDA.
#include "core/gradient_rows.h"
#include "cuda/slice.cuh"
#include "cuda/straight_through.cuh"
#include "ops/fake_quantize_backward/desc.h"

namespace planq::fake_quantize_backward {
namespace {

using Row = cuda::StraightThroughRow<cuda::Slice, false, Fields>;

constexpr Kernel kRows[] = {
    gradient_row<Gradient, Backend::Cuda, cuda::kSlice>(Row::prepare, Row::launch)};

}  // namespace

extern const std::span<const Kernel> PLANQ_CUDA_ROWS;
const std::span<const Kernel> PLANQ_CUDA_ROWS = kRows;

}  // namespace planq::fake_quantize_backward
