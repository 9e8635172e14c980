// activation on CUDA: a thread has units of neighbours. The file that includes this names the type
// of the input: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "core/sku.h"
#include "cuda/element.cuh"
#include "cuda/element_units.cuh"
#include "ops/activation/activation/arithmetic.h"

namespace planq::activation {
namespace {

using cuda::Element;

template <ActivationFunction kFunction>
struct Fixed {
  template <int kCount>
  __device__ __forceinline__ static void apply(float (&values)[kCount]) {
#pragma unroll
    for (float& value : values) value = value_of<kFunction>(value);
  }
};
// Units of one element, and of two types, do without a kernel for each function.
using AnyFunction = cuda::Chosen<ActivationFunction, Fixed>;

// What is read for an element of the output: one element, one of each side, or a pair.
enum class Given { Single, Sides, Pair };

template <class U, Given kGiven>
inline constexpr int kUnit =
    cuda::kVectorBytes /
    static_cast<int>(std::max(sizeof(Element) * (kGiven == Given::Pair ? 2 : 1), sizeof(U)));

template <class U, class F, Given kGiven, int kCount>
struct Activation {
  static constexpr int kEach = kCount;
  static constexpr bool kPairs = kGiven == Given::Pair, kSides = kGiven == Given::Sides;
  struct Loaded {
    cuda::UnitElements<Element, kPairs ? 2 * kEach : kEach> gate;  // with the up side, of pairs
    cuda::UnitElements<Element, kSides ? kEach : 1> up;
  };

  const Element *gate, *up;
  U* output;
  F function;

  __device__ __forceinline__ void load(const cuda::Unit& unit, Loaded& to) const {
    const Element* const from = gate + unit.row[kGateSide] + unit.column * (kPairs ? 2 : 1);
    if constexpr (kPairs && kEach == 1)
      to.gate.load_each(from, 2);
    else
      to.gate.load(from, unit.count * (kPairs ? 2 : 1));
    if constexpr (kSides) to.up.load(up + unit.row[kUpSide] + unit.column, unit.count);
  }
  __device__ __forceinline__ void run(const cuda::Unit& unit, const Loaded& from) const {
    float values[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) values[i] = from.gate[kPairs ? 2 * i : i];
    function.apply(values);
    if constexpr (kPairs || kSides) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) values[i] *= kPairs ? from.gate[2 * i + 1] : from.up[i];
    }
    cuda::UnitElements<U, kEach> result;
    result.narrow(values);
    result.store(output + unit.row[kOutputSide] + unit.column, unit.count);
  }
};

template <class U>
inline constexpr bool kHasFixed = std::is_same_v<U, Element>;

template <class U, Given kGiven>
Status preload_given() {
  constexpr int kWhole = kUnit<U, kGiven>;
  PLANQ_TRY((cuda::preload(cuda::element_units<Activation<U, AnyFunction, kGiven, 1>>)));
  if constexpr (!kHasFixed<U>)
    return cuda::preload(cuda::element_units<Activation<U, AnyFunction, kGiven, kWhole>>);
  else
    return cuda::for_each_enumerator<ActivationFunction, Fixed>([](auto fixed) {
      return cuda::preload(cuda::element_units<Activation<U, decltype(fixed), kGiven, kWhole>>);
    });
}

template <class U, Given kGiven>
Status launch_given(const Sides& sides, const Call& call, Bound& bound) {
  constexpr int kWhole = kUnit<U, kGiven>, kSize = sizeof(Element);
  const auto* const gate = static_cast<const Element*>(sides.gate.data);
  const auto* const up = static_cast<const Element*>(sides.up.data);
  auto* const output = static_cast<U*>(call.operands[kOutput].data);
  const AnyFunction any = {call.fields<Fields>().function};
  const bool takes = cuda::takes_units(
      sides.layout, kWhole,
      {{gate, kSize, kGiven == Given::Pair ? 2 : 1}, {up, kSize}, {output, sizeof(U)}});
  if (!takes)
    return cuda::launch_units(Activation<U, AnyFunction, kGiven, 1>{gate, up, output, any},
                              sides.layout, call, bound);
  if constexpr (!kHasFixed<U>)
    return cuda::launch_units(Activation<U, AnyFunction, kGiven, kWhole>{gate, up, output, any},
                              sides.layout, call, bound);
  else
    return cuda::by_enumerator<ActivationFunction, Fixed>(any.value, [&](auto fixed) {
      return cuda::launch_units(
          Activation<U, decltype(fixed), kGiven, kWhole>{gate, up, output, fixed}, sides.layout,
          call, bound);
    });
}

template <DType kOutputType>
Status prepare(const Descriptor& descriptor, const Device&, State&) {
  using U = math::Stored<kOutputType>;
  const Fields& f = descriptor.as<Fields>();
  if (!f.gated) return preload_given<U, Given::Single>();
  return f.layout == GateLayout::Interleaved ? preload_given<U, Given::Pair>()
                                             : preload_given<U, Given::Sides>();
}

template <DType kOutputType>
Status bind(const Call& call, Bound& bound) {
  using U = math::Stored<kOutputType>;
  const Fields& f = call.fields<Fields>();
  const Sides sides(call);
  if (!f.gated) return launch_given<U, Given::Single>(sides, call, bound);
  return f.layout == GateLayout::Interleaved ? launch_given<U, Given::Pair>(sides, call, bound)
                                             : launch_given<U, Given::Sides>(sides, call, bound);
}

template <DType kOutputType>
constexpr Kernel kActivation =
    kernel<cuda::kElement, kOutputType, Backend::Cuda>(prepare<kOutputType>, bind<kOutputType>);

constexpr auto kKernels =
    joined(std::array{kActivation<DType::Float16>, kActivation<DType::BFloat16>,
                      kActivation<DType::Float32>},
           affine::quantized_parts<Fields, Backend::Cuda, cuda::kElement>("activation"));

}  // namespace
}  // namespace planq::activation
