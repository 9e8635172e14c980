// fill on CUDA: the bits of the number, repeated in vectors.

#include <cstdint>

#include "core/sku.h"
#include "cuda/launch.cuh"
#include "ops/memory/elements.cuh"
#include "ops/memory/fill/desc.h"
#include "ops/memory/numbers.h"

namespace planq::fill {
namespace {

template <DType kType>
struct FillArgs {
  typename memory::Number<kType>::Memory* output;
  memory::Given<kType> value;
  memory::Groups groups;
};

template <DType kType>
__global__ void __launch_bounds__(memory::kThreads)
    fill_elements(const __grid_constant__ FillArgs<kType> args) {
  using Memory = typename memory::Number<kType>::Memory;
  constexpr int kEach = memory::kGroup<Memory>;
  const Memory stored = memory::Given<kType>::stored(args.value.get());
  Memory each[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) each[i] = stored;
  memory::each_group<kEach>(args.groups, [&](const memory::Group& group) {
    memory::store_group(args.output + group.at.at[0], group.count, each);
  });
}

template <DType kType>
Status prepare(const Descriptor&, const Device&, State&) {
  return cuda::preload(fill_elements<kType>);
}

template <DType kType>
Status bind(const Call& call, Bound& bound) {
  using Memory = typename memory::Number<kType>::Memory;
  const OperandView& output = call.operands[kOutput];
  const ElementLayout layout =
      element_layout(call.fields<Fields>().shape, Scope{}, {ElementOperand{&output}});
  const FillArgs<kType> args = {static_cast<Memory*>(output.data),
                                memory::Given<kType>(call.operands[kValue]),
                                memory::Groups(layout, memory::kGroup<Memory>)};
  return memory::launch_groups(fill_elements<kType>, args, bound);
}

constexpr auto kKernels = memory::kernels_of_all([](auto type) -> Kernel {
  constexpr DType kType = type.value;
  return {
      .op = "fill",
      .body = "elements",
      .dtypes = kDTypes<kType, kType>,
      .revision = 1,
      .backend = Backend::Cuda,
      .arch = {80, kLastArch},
      .rank = 0,
      .guarantee = memory::kElementGuarantee<MathPrecision::None, memory::scalar_dtype(kType),
                                             !memory::is_integer(kType)>,
      .rejects = memory::rejects_other_output<Fields, kType>,
      .workspace = no_workspace,
      .prepare = prepare<kType>,
      .bind = bind<kType>,
  };
});

}  // namespace

}  // namespace planq::fill

PLANQ_KERNELS(fill, cuda, kKernels);
