// dequantize_backward on CUDA.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/element.cuh"
#include "ops/affine/affine.cuh"
#include "ops/affine/dequantize_backward/desc.h"
#include "ops/affine/elementwise/gradient_kernels.h"

namespace planq::dequantize_backward {
namespace {

using T = cuda::Element;
using C = math::Compute<T>;

struct GradientArgs {
  const T* grad_output;
  T* grad_input;
};

struct Product {
  using C = math::Compute<T>;
  using Args = GradientArgs;
  static constexpr int kVector = cuda::kPerVector<T>;
  static constexpr bool kHasRule = false;
  static constexpr int kUnit = 1;
  static constexpr std::array<int, 3> kVectorBytes = {16, 16, 1};
  static constexpr cuda::TileShape kTile = cuda::kWritingTile, kGroupTile = kTile;
  static constexpr cuda::ColumnShape kColumnShape{8, false, 4};
  using Vector = uint4;
  using Result = cuda::VectorOf<T, kVector>;
  struct Parameters {
    C scale;
    bool fast_is_exact;
  };

  __device__ __forceinline__ static Vector load(const Args& args, const cuda::ElementPlace& place) {
    return cuda::load_once(args.grad_output + place.at.at[0]);
  }
  template <bool>
  __device__ __forceinline__ static Parameters parameters(const Args&, const cuda::GivenParameters&,
                                                          const cuda::StoredParameters<C>& stored) {
    return {stored.scale, true};
  }

  // Whether no gradient is a NaN, which would need its canonical bits.
  template <bool, class ParametersOf>
  __device__ __forceinline__ static bool run(const Args&, const Vector& vector,
                                             const cuda::ElementPlace&, const ParametersOf& of,
                                             Result& result) {
    C values[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) values[j] = cuda::element_of<T>(vector, j) * of(j).scale;
    result = cuda::narrow_vector<T>(values);
    return !cuda::any_nan(values);
  }
  __device__ __forceinline__ static void store(const Args& args, const cuda::ElementPlace& place,
                                               const Result& result) {
    cuda::store_elements(args.grad_input + place.at.at[1], result);
  }

  template <class PlaceOf>
  __device__ __forceinline__ static void run_single(const Args& args,
                                                    const cuda::GivenParameters& given,
                                                    const PlaceOf& place_of, int first, int) {
    const cuda::ElementPlace place = place_of(first);
    const C dy = math::widen(cuda::load_single(args.grad_output + place.at.at[0]));
    cuda::store_single(args.grad_input + place.at.at[1],
                       math::narrow<T>(dy * given.read_one<C>(place.at).scale));
  }
};

using Op = Product;

Status prepare(const Descriptor&, const Device&, State&) { return cuda::preload_elements<Op>(); }

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const Op::Args args = {static_cast<const T*>(operands[kGradOutput].data),
                         static_cast<T*>(operands[kGradInput].data)};
  const cuda::GivenParameters given = {operands[kScale].data, nullptr, f.scale_dtype};
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kGradOutput]}, {&operands[kGradInput]}, {}, {&operands[kScale]}, {}};
  return cuda::launch_elements<Op>(args, given, f.shape, f.scope, layout, bound);
}

constexpr Kernel kKernels[] = {
    gradient_kernel<Gradient, Backend::Cuda, cuda::kElement>(prepare, bind)};

}  // namespace

}  // namespace planq::dequantize_backward
