// multiply on CUDA: a vector of products a thread.

#include <cstdint>

#include "core/sku.h"
#include "cuda/launch.cuh"
#include "ops/memory/elements.cuh"
#include "ops/memory/multiply/desc.h"
#include "ops/memory/multiply/product.h"
#include "ops/memory/numbers.h"

namespace planq::multiply {
namespace {

template <class Memory>
struct MultiplyArgs {
  const Memory *input, *other;
  Memory* output;
  memory::Groups groups;
};

template <DType kType>
using ArgsOf = MultiplyArgs<typename memory::Number<kType>::Memory>;

template <DType kType>
__global__ void __launch_bounds__(memory::kThreads)
    multiply_elements(const __grid_constant__ ArgsOf<kType> args) {
  using Own = memory::Number<kType>;
  using Memory = typename Own::Memory;
  constexpr int kEach = memory::kGroup<Memory>;
  memory::each_group<kEach>(args.groups, [&](const memory::Group& group) {
    Memory x[kEach], y[kEach];
    memory::load_group(args.input + group.at.at[kInput], group.count, x);
    memory::load_group(args.other + group.at.at[kOther], group.count, y);
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = Own::product(x[i], y[i]);
    memory::store_group(args.output + group.at.at[kOutput], group.count, x);
  });
}

template <DType kType>
Status prepare(const Descriptor&, const Device&, State&) {
  return cuda::preload(multiply_elements<kType>);
}

template <DType kType>
Status bind(const Call& call, Bound& bound) {
  using Memory = typename memory::Number<kType>::Memory;
  const Operands& given = call.operands;
  const ArgsOf<kType> args = {static_cast<const Memory*>(given[kInput].data),
                              static_cast<const Memory*>(given[kOther].data),
                              static_cast<Memory*>(given[kOutput].data),
                              memory::Groups(layout_of(call), memory::kGroup<Memory>)};
  return memory::launch_groups(multiply_elements<kType>, args, bound);
}

constexpr auto kKernels = memory::kernels_of_all([](auto type) -> Kernel {
  constexpr DType kType = type.value;
  return {
      .op = "multiply",
      .body = "elements",
      .dtypes = kDTypes<kType, kType>,
      .revision = 1,
      .backend = Backend::Cuda,
      .arch = {80, kLastArch},
      .rank = 0,
      .guarantee = kGuarantee<kType>,
      .rejects = rejects<kType>,
      .workspace = no_workspace,
      .prepare = prepare<kType>,
      .bind = bind<kType>,
  };
});

}  // namespace

}  // namespace planq::multiply

PLANQ_KERNELS(multiply, cuda, kKernels);
