// arange on CUDA: each element from its index.

#include <cstdint>

#include "core/sku.h"
#include "cuda/launch.cuh"
#include "ops/memory/arange/desc.h"
#include "ops/memory/arange/progression.h"
#include "ops/memory/elements.cuh"
#include "ops/memory/numbers.h"

namespace planq::arange {
namespace {

template <DType kType>
struct ArangeArgs {
  typename memory::Number<kType>::Memory* output;
  Ends<kType> ends;
  memory::Groups groups;
};

template <DType kType>
__global__ void __launch_bounds__(memory::kThreads)
    count_elements(const __grid_constant__ ArangeArgs<kType> args) {
  using Memory = typename memory::Number<kType>::Memory;
  constexpr int kEach = memory::kGroup<Memory>;
  const Progression<kType> numbers = args.ends.get();
  memory::each_group<kEach>(args.groups, [&](const memory::Group& group) {
    Memory each[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) each[i] = numbers.at(group.first + i);
    memory::store_group(args.output + group.at.at[0], group.count, each);
  });
}

template <DType kType>
Status prepare(const Descriptor&, const Device&, State&) {
  return cuda::preload(count_elements<kType>);
}

template <DType kType>
Status bind(const Call& call, Bound& bound) {
  using Memory = typename memory::Number<kType>::Memory;
  const OperandView& output = call.operands[kOutput];
  const ElementLayout layout =
      element_layout(call.fields<Fields>().shape, Scope{}, {ElementOperand{&output}});
  const ArangeArgs<kType> args = {static_cast<Memory*>(output.data), Ends<kType>(call.operands),
                                  memory::Groups(layout, memory::kGroup<Memory>)};
  return memory::launch_groups(count_elements<kType>, args, bound);
}

constexpr auto kKernels = memory::kernels_of_all([](auto type) -> Kernel {
  constexpr DType kType = type.value;
  return {
      .op = "arange",
      .body = "elements",
      .dtypes = kDTypes<kType, kType>,
      .revision = 1,
      .backend = Backend::Cuda,
      .arch = {80, kLastArch},
      .rank = 0,
      .guarantee = kGuarantee<kType>,
      .rejects = memory::rejects_other_output<Fields, kType>,
      .workspace = no_workspace,
      .prepare = prepare<kType>,
      .bind = bind<kType>,
  };
});

}  // namespace

}  // namespace planq::arange

PLANQ_KERNELS(arange, cuda, kKernels);
