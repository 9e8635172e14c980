// add on CUDA: a thread has units of neighbours. The file that includes this names the type of the
// input: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/sku.h"
#include "cuda/element.cuh"
#include "cuda/element_units.cuh"
#include "ops/elementwise/add/desc.h"

namespace planq::add {
namespace {

using cuda::Element;

template <class V, class U>
inline constexpr int kUnit =
    cuda::kVectorBytes / static_cast<int>(std::max({sizeof(Element), sizeof(V), sizeof(U)}));

template <class V, class U, int kCount>
struct Add {
  static constexpr int kEach = kCount;
  struct Loaded {
    cuda::UnitElements<Element, kEach> input;
    cuda::UnitElements<V, kEach> other;
  };

  const Element* input;
  const V* other;
  U* output;
  Factor alpha;

  __device__ __forceinline__ void load(const cuda::Unit& unit, Loaded& to) const {
    to.input.load(input + unit.row[kInput] + unit.column, unit.count);
    to.other.load(other + unit.row[kOther] + unit.column, unit.count);
  }
  __device__ __forceinline__ void run(const cuda::Unit& unit, const Loaded& from) const {
    const float factor = alpha.get();
    float values[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) values[i] = sum_of(from.input[i], factor, from.other[i]);
    cuda::UnitElements<U, kEach> result;
    result.narrow(values);
    result.store(output + unit.row[kOutput] + unit.column, unit.count);
  }
};

// Calls use(V{}) for the type of `other`.
template <class Use>
Status by_other(DType other, const Use& use) {
  if (other == DType::Float16) return use(math::Half{});
  if (other == DType::BFloat16) return use(math::Bfloat16{});
  return use(float{});
}

template <DType kOutputType>
Status prepare(const Descriptor& descriptor, const Device&, State&) {
  using U = math::Stored<kOutputType>;
  return by_other(descriptor.as<Fields>().other_dtype, [](auto type) {
    using V = decltype(type);
    PLANQ_TRY((cuda::preload(cuda::element_units<Add<V, U, 1>>)));
    return cuda::preload(cuda::element_units<Add<V, U, kUnit<V, U>>>);
  });
}

template <DType kOutputType>
Status bind(const Call& call, Bound& bound) {
  using U = math::Stored<kOutputType>;
  const Operands& given = call.operands;
  const ElementLayout layout = layout_of(call);
  const auto* const input = static_cast<const Element*>(given[kInput].data);
  auto* const output = static_cast<U*>(given[kOutput].data);
  const Factor alpha(given[kAlpha]);
  return by_other(call.fields<Fields>().other_dtype, [&](auto type) {
    using V = decltype(type);
    const auto* const other = static_cast<const V*>(given[kOther].data);
    const bool takes = cuda::takes_units(
        layout, kUnit<V, U>, {{input, sizeof(Element)}, {other, sizeof(V)}, {output, sizeof(U)}});
    if (!takes)
      return cuda::launch_units(Add<V, U, 1>{input, other, output, alpha}, layout, call, bound);
    return cuda::launch_units(Add<V, U, kUnit<V, U>>{input, other, output, alpha}, layout, call,
                              bound);
  });
}

template <DType kOutputType>
constexpr Kernel kAdd =
    kernel<cuda::kElement, kOutputType, Backend::Cuda>(prepare<kOutputType>, bind<kOutputType>);

constexpr Kernel kKernels[] = {kAdd<DType::Float16>, kAdd<DType::BFloat16>, kAdd<DType::Float32>};

}  // namespace
}  // namespace planq::add
