// quantize_backward on CUDA.
#include <array>
#include <cstdint>

#include "core/gradient_rows.h"
#include "cuda/slice.cuh"
#include "cuda/straight_through.cuh"
#include "ops/quantize_backward/desc.h"

namespace planq::quantize_backward {
namespace {

using T = cuda::Slice;
using C = math::Compute<T>;
using Op = cuda::StraightThrough<T, true>;

Status prepare(const Descriptor& descriptor, const Device&, State& state) {
  state.emplace<Fields>() = descriptor.as<Fields>();
  return cuda::preload_elements<Op>();
}

Status launch(const State& state, const Operands& operands, Workspace, const Stream& stream) {
  const Fields& f = state.as<Fields>();
  const bool asymmetric = f.mode == Mode::Asymmetric;
  const Op::Args args = {static_cast<const T*>(operands[kGradOutput].data),
                         static_cast<const T*>(operands[kInput].data),
                         static_cast<T*>(operands[kGradInput].data), recipe_of<C>(f)};
  const cuda::GivenParameters given = {operands[kScale].data,
                                       asymmetric ? operands[kZeroPoint].data : nullptr,
                                       f.scale_dtype, f.zero_point_dtype};
  return cuda::launch_elements<Op>(args, given, f.shape, f.scope, layout_of(f, operands),
                                   stream.handle);
}

constexpr Kernel kRows[] = {gradient_row<Gradient, Backend::Cuda, cuda::kSlice>(prepare, launch)};

}  // namespace

extern const std::span<const Kernel> PLANQ_CUDA_ROWS;
const std::span<const Kernel> PLANQ_CUDA_ROWS = kRows;

}  // namespace planq::quantize_backward
