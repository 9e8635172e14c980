// extract_outliers on CUDA: a thread for each element of the output. Neighbouring threads write
// neighbouring elements, and read the listed columns of the same row.

#include <algorithm>
#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "ops/outlier/extract_outliers/desc.h"

namespace planq::extract_outliers {

namespace {

constexpr int kThreads = 256;
// A grid has fewer than 2^31 thread blocks; a grid-stride loop covers the rest.
constexpr std::int64_t kMostBlocks = 1 << 30;

template <class E>
__global__ void __launch_bounds__(kThreads) extract(const __grid_constant__ Extraction<E> args) {
  const std::int64_t elements = args.rows * args.capacity;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; i < elements; i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const std::int64_t row = i / args.capacity, position = i - row * args.capacity;
    args.output[args.output_rows.offsets(row).at[0] + position] =
        args.element(row, args.column(position));
  }
}

template <class E>
Status prepare(const Descriptor&, const Device&, State&) {
  return cuda::preload(extract<E>);
}

template <class E>
Status bind(const Call& call, Bound& bound) {
  const Extraction<E> args(call.fields<Fields>(), call.operands);
  const std::int64_t elements = args.rows * args.capacity;
  if (elements == 0) return Status::success();
  const std::int64_t blocks = std::min(cuda::ceil_div(elements, kThreads), kMostBlocks);
  return cuda::launch(extract<E>, {blocks, kThreads}, args, bound);
}

template <DType kDType, class E>
constexpr Kernel make_kernel() {
  return {.op = "extract_outliers",
          .body = "elements",
          .dtypes = kDTypes<kDType>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kDType>,
          .workspace = no_workspace,
          .prepare = prepare<E>,
          .bind = bind<E>};
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Int8, std::int8_t>(),
    make_kernel<DType::Int32, std::int32_t>(),
};

}  // namespace
}  // namespace planq::extract_outliers

PLANQ_KERNELS(extract_outliers, cuda, kKernels);
