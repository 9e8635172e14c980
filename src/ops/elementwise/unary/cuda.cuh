// unary on CUDA: a thread has units of neighbours. The file that includes this names the type of
// the input: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/sku.h"
#include "cuda/element.cuh"
#include "cuda/element_units.cuh"
#include "ops/elementwise/unary/desc.h"

namespace planq::unary {
namespace {

using cuda::Element;

template <UnaryFunction kFunction>
struct Fixed {
  template <int kCount>
  __device__ __forceinline__ static void apply(float (&values)[kCount]) {
#pragma unroll
    for (float& value : values) value = math::value_of<function_of(kFunction)>(value);
  }
};
// Units of one element, and of two types, do without a kernel for each function.
using AnyFunction = cuda::Chosen<UnaryFunction, Fixed>;

template <class U>
inline constexpr int kUnit =
    cuda::kVectorBytes / static_cast<int>(std::max(sizeof(Element), sizeof(U)));

template <class U, class F, int kCount>
struct Unary {
  static constexpr int kEach = kCount;
  using Loaded = cuda::UnitElements<Element, kEach>;

  const Element* input;
  U* output;
  F function;

  __device__ __forceinline__ void load(const cuda::Unit& unit, Loaded& to) const {
    to.load(input + unit.row[kInput] + unit.column, unit.count);
  }
  __device__ __forceinline__ void run(const cuda::Unit& unit, const Loaded& from) const {
    float values[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) values[i] = from[i];
    function.apply(values);
    cuda::UnitElements<U, kEach> result;
    result.narrow(values);
    result.store(output + unit.row[kOutput] + unit.column, unit.count);
  }
};

template <class U>
inline constexpr bool kHasFixed = std::is_same_v<U, Element>;

template <DType kOutputType>
Status prepare(const Descriptor&, const Device&, State&) {
  using U = math::Stored<kOutputType>;
  PLANQ_TRY(cuda::preload(cuda::element_units<Unary<U, AnyFunction, 1>>));
  if constexpr (!kHasFixed<U>)
    return cuda::preload(cuda::element_units<Unary<U, AnyFunction, kUnit<U>>>);
  else
    return cuda::for_each_enumerator<UnaryFunction, Fixed>([](auto fixed) {
      return cuda::preload(cuda::element_units<Unary<U, decltype(fixed), kUnit<U>>>);
    });
}

template <DType kOutputType>
Status bind(const Call& call, Bound& bound) {
  using U = math::Stored<kOutputType>;
  const auto* const input = static_cast<const Element*>(call.operands[kInput].data);
  auto* const output = static_cast<U*>(call.operands[kOutput].data);
  const AnyFunction any = {call.fields<Fields>().function};
  const ElementLayout layout = layout_of(call);
  if (!cuda::takes_units(layout, kUnit<U>, {{input, sizeof(Element)}, {output, sizeof(U)}}))
    return cuda::launch_units(Unary<U, AnyFunction, 1>{input, output, any}, layout, call, bound);
  if constexpr (!kHasFixed<U>)
    return cuda::launch_units(Unary<U, AnyFunction, kUnit<U>>{input, output, any}, layout, call,
                              bound);
  else
    return cuda::by_enumerator<UnaryFunction, Fixed>(any.value, [&](auto fixed) {
      return cuda::launch_units(Unary<U, decltype(fixed), kUnit<U>>{input, output, fixed}, layout,
                                call, bound);
    });
}

template <DType kOutputType>
constexpr Kernel kUnary =
    kernel<cuda::kElement, kOutputType, Backend::Cuda>(prepare<kOutputType>, bind<kOutputType>);

constexpr Kernel kKernels[] = {kUnary<DType::Float16>, kUnary<DType::BFloat16>,
                               kUnary<DType::Float32>};

}  // namespace
}  // namespace planq::unary
