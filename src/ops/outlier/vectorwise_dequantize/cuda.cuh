// vectorwise_dequantize on CUDA.
#pragma once

#include <array>
#include <cstdint>

#include "core/sku.h"
#include "cuda/element.cuh"
#include "ops/affine/affine.cuh"
#include "ops/outlier/vectorwise_dequantize/desc.h"

namespace planq::vectorwise_dequantize {
namespace {

using cuda::ElementPlace;
using Out = cuda::Element;
using Value = math::Compute<Out>;

struct DequantizeArgs {
  const std::uint8_t* input;
  Out* output;
};

// A segment's parameters, prepared for the loops over codes.
struct Numbers {
  Value scale, inverse;  // inverse: of the scale if that is the divisor, else of 127
  std::int32_t zero_point;
  bool fast_is_exact;
};

// kForm stands for all forms whose codes are dequantized alike.
template <VectorwiseForm kForm>
struct Dequantize {
  using C = Value;
  using Args = DequantizeArgs;
  static constexpr bool kShifted = outlier::has_zero_point(kForm);
  static constexpr bool kHasRule = false;
  static constexpr int kUnit = 1;
  static constexpr int kVector = 16 / static_cast<int>(sizeof(Out));
  static constexpr std::array<int, 3> kVectorBytes = {kVector, 16, 1};
  static constexpr cuda::TileShape kTile = cuda::kWritingTile, kGroupTile = kTile;
  static constexpr cuda::ColumnShape kColumnShape{8, false, 3};
  using Vector = cuda::Word<kVector>;
  using Result = cuda::VectorOf<Out, kVector>;
  using Parameters = Numbers;

  __device__ __forceinline__ static Vector load(const Args& args, const ElementPlace& place) {
    return cuda::load_vector<Vector>(args.input + place.at.at[0]);
  }
  template <bool>
  __device__ __forceinline__ static Parameters parameters(const Args&, const cuda::GivenParameters&,
                                                          const cuda::StoredParameters<C>& stored) {
    const C scale = stored.scale;
    const std::int32_t zero_point = stored.zero_point;
    if constexpr (!kShifted) return {scale, C(1) / C(127), 0, math::is_finite(scale)};
    const bool window = scale >= cuda::kSmallScale<C> && scale <= cuda::kLargeScale<C>;
    constexpr std::int32_t kExact = 1 << 22;  // differences to codes have 24 bits
    return {scale, cuda::inverse_of(scale), zero_point,
            window && zero_point <= kExact && zero_point >= -kExact};
  }

  __device__ __forceinline__ static std::int32_t code_of(const Vector& vector, int j) {
    const auto byte = static_cast<std::uint8_t>(vector >> 8 * j);
    return kShifted ? static_cast<std::int32_t>(byte)
                    : static_cast<std::int32_t>(static_cast<std::int8_t>(byte));
  }
  // cuda::quotient() gives the IEEE quotient here: the dividend is an integer, so nothing
  // underflows, and a zero has no sign.
  __device__ __forceinline__ static C fast_element(std::int32_t code, const Numbers& n) {
    if constexpr (kShifted)
      return cuda::quotient<true>(static_cast<C>(code - n.zero_point), n.scale, n.inverse);
    return cuda::quotient<true>(static_cast<C>(code), C(127), n.inverse) * n.scale;
  }
  // Returns whether the elements are exact; otherwise the caller takes the slow path.
  template <bool, class ParametersOf>
  __device__ __forceinline__ static bool run(const Args&, const Vector& vector, const ElementPlace&,
                                             const ParametersOf& of, Result& result) {
    bool exact = true;
    C values[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      exact = exact && of(j).fast_is_exact;
      values[j] = fast_element(code_of(vector, j), of(j));
    }
    result = cuda::narrow_vector<Out>(values);
    return exact;
  }
  __device__ __forceinline__ static void store(const Args& args, const ElementPlace& place,
                                               const Result& result) {
    cuda::store_elements(args.output + place.at.at[1], result);
  }
  template <class PlaceOf>
  __device__ __forceinline__ static void run_single(const Args& args,
                                                    const cuda::GivenParameters& given,
                                                    const PlaceOf& place_of, int first, int) {
    const ElementPlace place = place_of(first);
    const auto stored = given.read_one<C>(place.at);
    const Vector code = cuda::load_single(args.input + place.at.at[0]);
    const C value =
        outlier::vectorwise_element<C>(kForm, code_of(code, 0), stored.scale, stored.zero_point);
    cuda::store_single(args.output + place.at.at[1], math::narrow<Out>(value));
  }
};

template <DType kIn>
inline constexpr VectorwiseForm kFormOf =
    kIn == DType::UInt8 ? VectorwiseForm::Zeropoint : VectorwiseForm::Vector;

template <DType kIn>
Status prepare(const Descriptor&, const Device&, State&) {
  return cuda::preload_elements<Dequantize<kFormOf<kIn>>>();
}

template <DType kIn>
Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  constexpr bool kZeroPoints = outlier::has_zero_point(kFormOf<kIn>);
  const DequantizeArgs args = {static_cast<const std::uint8_t*>(operands[kInput].data),
                               static_cast<Out*>(operands[kOutput].data)};
  const cuda::GivenParameters given = {operands[kScale].data,
                                       kZeroPoints ? operands[kZeroPoint].data : nullptr,
                                       compute_dtype(cuda::kElement)};
  const std::array<ElementOperand, 5> layout = {ElementOperand{&operands[kInput]},
                                                {&operands[kOutput]},
                                                {},
                                                {&operands[kScale]},
                                                {kZeroPoints ? &operands[kZeroPoint] : nullptr}};
  return cuda::launch_elements<Dequantize<kFormOf<kIn>>>(args, given, f.shape, scope_of(f), layout,
                                                         bound);
}

template <DType kIn>
constexpr Kernel make_kernel() {
  return {.op = "vectorwise_dequantize",
          .body = "elements",
          .dtypes = kDTypes<kIn, cuda::kElement>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 0,
          .guarantee = guarantee<cuda::kElement>(),
          .rejects = rejects<kIn, cuda::kElement>,
          .workspace = no_workspace,
          .prepare = prepare<kIn>,
          .bind = bind<kIn>};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Int8>(), make_kernel<DType::UInt8>()};

}  // namespace

}  // namespace planq::vectorwise_dequantize
