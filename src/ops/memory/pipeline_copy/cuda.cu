// pipeline_copy on CUDA: vectors go to shared memory asynchronously, some stages ahead of those
// that are stored. A thread reads what it copied itself, so no barrier holds it up.

#include <cstdint>

#include "cuda/launch.cuh"
#include "ops/memory/elements.cuh"
#include "ops/memory/pipeline_copy/desc.h"

namespace planq::pipeline_copy {
namespace {

using std::int64_t;

constexpr int kStages = 4, kBlocks = 6;  // of a multiprocessor

template <class Memory>
struct CopyArgs {
  const Memory* input;
  Memory* output;
  memory::Groups groups;
};

__device__ __forceinline__ void end_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all stages but the last kStages - 1 of this thread have arrived.
__device__ __forceinline__ void wait_for_oldest() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
}

// Whether a group goes through shared memory; others are copied element by element.
template <class Memory>
__device__ __forceinline__ bool is_staged(const CopyArgs<Memory>& args,
                                          const memory::Group& group) {
  return memory::is_vector(args.input + group.at.at[kInput], group.count) &&
         memory::is_vector(args.output + group.at.at[kOutput], group.count);
}

template <class Memory>
__device__ __forceinline__ void store_group(const CopyArgs<Memory>& args,
                                            const memory::Group& group, const uint4& staged) {
  const Memory* const from = args.input + group.at.at[kInput];
  Memory* const to = args.output + group.at.at[kOutput];
  if (is_staged(args, group)) {
    cuda::store_vector(to, staged);
    return;
  }
#pragma unroll 1
  for (int i = 0; i < group.count; ++i) cuda::store_single(to + i, cuda::load_single(from + i));
}

template <class Memory>
__global__ void __launch_bounds__(memory::kThreads, kBlocks)
    copy_staged(const __grid_constant__ CopyArgs<Memory> args) {
  constexpr int kEach = memory::kGroup<Memory>;
  __shared__ uint4 stages[kStages][memory::kThreads];
  const int64_t first = int64_t{blockIdx.x} * memory::kThreads + threadIdx.x;
  const int64_t stride = int64_t{gridDim.x} * memory::kThreads;
  const auto stage = [&](int64_t own, int at) {
    if (own < args.groups.count) {
      const memory::Group group = memory::group_of<kEach>(args.groups, own);
      if (is_staged(args, group))
        cuda::copy_once(&stages[at][threadIdx.x], args.input + group.at.at[kInput]);
    }
    end_stage();
  };
#pragma unroll
  for (int ahead = 0; ahead < kStages - 1; ++ahead) stage(first + ahead * stride, ahead);
  int at = 0;
#pragma unroll 1
  for (int64_t own = first; own < args.groups.count; own += stride) {
    stage(own + (kStages - 1) * stride, (at + kStages - 1) % kStages);
    wait_for_oldest();
    store_group(args, memory::group_of<kEach>(args.groups, own), stages[at][threadIdx.x]);
    at = (at + 1) % kStages;
  }
}

template <class Memory>
Status launch_copy(const Call& call, Bound& bound) {
  const Operands& given = call.operands;
  const CopyArgs<Memory> args = {static_cast<const Memory*>(given[kInput].data),
                                 static_cast<Memory*>(given[kOutput].data),
                                 memory::Groups(layout_of(call), memory::kGroup<Memory>)};
  if (args.groups.count == 0) return Status::success();
  cuda::Grid grid = args.groups.grid();
  grid.blocks = std::min(grid.blocks, int64_t{call.device.multiprocessors} * kBlocks);
  return cuda::launch(copy_staged<Memory>, grid, args, bound);
}

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(cuda::preload(copy_staged<std::uint8_t>));
  PLANQ_TRY(cuda::preload(copy_staged<std::uint16_t>));
  PLANQ_TRY(cuda::preload(copy_staged<std::uint32_t>));
  return cuda::preload(copy_staged<std::uint64_t>);
}

Status bind(const Call& call, Bound& bound) {
  switch (storage_bytes(call.fields<Fields>().input_dtype)) {
    case 1:
      return launch_copy<std::uint8_t>(call, bound);
    case 2:
      return launch_copy<std::uint16_t>(call, bound);
    case 4:
      return launch_copy<std::uint32_t>(call, bound);
    default:
      return launch_copy<std::uint64_t>(call, bound);
  }
}

constexpr Kernel kKernels[] = {{
    .op = "pipeline_copy",
    .body = "staged",
    .revision = 1,
    .backend = Backend::Cuda,
    .arch = {80, kLastArch},
    .rank = 0,
    .guarantee = kGuarantee,
    .rejects = accept,
    .workspace = no_workspace,
    .prepare = prepare,
    .bind = bind,
}};

}  // namespace

}  // namespace planq::pipeline_copy

PLANQ_KERNELS(pipeline_copy, cuda, kKernels);
