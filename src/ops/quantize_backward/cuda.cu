// quantize_backward on CUDA.
#include <array>
#include <cstdint>

#include "core/rejects.h"
#include "core/sku.h"
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
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kGradOutput]},
      {&operands[kInput]},
      {&operands[kGradInput]},
      {&operands[kScale]},
      {asymmetric ? &operands[kZeroPoint] : nullptr, is_four_bit(f.zero_point_dtype)}};
  return cuda::launch_elements<Op>(args, given, f.shape, f.scope, layout, stream.handle);
}

Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", cuda::kSlice,
                descriptor.as<Fields>().input_dtype);
}

struct SkuParts {
  static constexpr std::array<std::string_view, 4> kParts = {
      "quantize_backward/cuda/elements/", short_name(cuda::kSlice), "_", short_name(cuda::kSlice)};
};

constexpr bool kWide = std::is_same_v<C, double>;
constexpr Kernel kRows[] = {
    {.sku = JoinedText<SkuParts>::view(),
     .revision = 1,
     .backend = Backend::Cuda,
     .arch = {80},
     .rank = 0,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
                   .accumulator = kWide ? DType::Float64 : DType::Float32,
                   .rounding = Rounding::NearestEven,
                   .max_ulp = 0,
                   .batch_invariant = true,
                   .basis = std::string_view("element by element; the quotient of the forward "
                                             "pass; exact integer sums")},
     .rejects = rejects,
     .workspace = cuda::no_workspace,
     .prepare = prepare,
     .launch = launch},
};

}  // namespace

extern const std::span<const Kernel> PLANQ_CUDA_ROWS;
const std::span<const Kernel> PLANQ_CUDA_ROWS = kRows;

}  // namespace planq::quantize_backward
