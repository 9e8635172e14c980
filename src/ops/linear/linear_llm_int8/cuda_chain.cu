// linear_llm_int8 on CUDA in the order of TENSOR_SM90, on any GPU: an integer gemm by the kernels
// of sm80, then a kernel that adds the outliers to one output at a time, by the function that the
// host calls, too.
#include <algorithm>

#include "math/tensor_core.h"
#include "ops/linear/linear_llm_int8/launch.h"
#include "ops/linear/simt/epilogue.cuh"
#include "ops/linear/sm80/launch.h"

namespace planq::linear_llm_int8 {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kMostBlocks = 1 << 20;

struct SumRoom {
  Room room;
  std::int32_t* sums;  // a row of n for each row of the input
  std::size_t bytes;

  SumRoom(const Fields& f, Scratch scratch) : room(f, scratch) {
    sums = scratch.take<std::int32_t>(held_in(f.rows(), f.columns()));
    bytes = scratch.bytes();
  }
};

struct ChainArgs {
  linear::Gemm gemm;
  const std::int32_t* sums;
  int64_t outputs;
  int smallest;  // exponent of the smallest normal number in the outliers' type
};

// The weight's codes of an output column at the places of the list.
struct OutlierCodes {
  const std::int8_t* codes;
  int64_t pitch;
  int smallest;

  __device__ float operator[](int64_t place) const { return codes[place * pitch]; }
  __device__ OutlierCodes from(int64_t place) const {
    return {codes + place * pitch, pitch, smallest};
  }
};

__global__ void __launch_bounds__(kThreads) compute_chains(const __grid_constant__ ChainArgs args) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
#pragma unroll 1
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < args.outputs; i += step) {
    const linear::OutputPlace place(args.gemm, i);
    const linear::Epilogue& e = place.gemm.epilogue;
    const linear::Outliers& list = e.outliers;
    const math::FactorRow values{static_cast<const float*>(list.values) + place.row * list.row,
                                 args.smallest};
    const OutlierCodes codes{list.codes + place.column, list.pitch, args.smallest};
    const float scaled =
        static_cast<float>(args.sums[i]) * linear::row_term<float>(e, place.row).scale;
    const float sum =
        math::tensor_core_chain<math::TensorCore16>(scaled, values, codes, list.listed());
    const float y =
        linear::finish_listed<float>(sum, linear::column_term<float>(e, place.column), e,
                                     linear::residual_at<float>(e, place.row, place.column));
    linear::store_output(place.gemm, place.row, place.column, y);
  }
}

}  // namespace

// Several launches, each of which waits for the one before it.
Status bind_chain(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const SumRoom room(f, Scratch(call.workspace));
  const linear::Gemm gemm = gemm_of(call, room.room);
  if (gemm.empty()) return Status::success();
  const OperandView sums = rows_view(f, room.sums, DType::Int32, f.columns());
  const linear::Gemm integers = linear::make_gemm(f.input(), f.weight(),
                                                  {.input = &call.operands[linear::kLayerInput],
                                                   .weight = &call.operands[linear::kLayerWeight],
                                                   .output = &sums});
  PLANQ_TRY(linear::launch_sm80(integers, call.device, bound));
  PLANQ_TRY(launch_gather(call, room.room, gemm, bound));
  const ChainArgs args{gemm, room.sums, gemm.m * gemm.n * gemm.batch.size(),
                       f.outlier_dtype == DType::Float16 ? -14 : -126};
  const cuda::Grid grid{.blocks = std::min(cuda::ceil_div(args.outputs, kThreads), kMostBlocks),
                        .threads = dim3(kThreads)};
  return cuda::launch(compute_chains, grid, args, bound);
}

std::size_t chain_workspace(const Descriptor& descriptor, const Device&) {
  return SumRoom(descriptor.as<Fields>(), Scratch()).bytes;
}

Status preload_chain() {
  PLANQ_TRY(preload_gather());
  PLANQ_TRY(linear::preload_sm80());
  return cuda::preload(compute_chains);
}

namespace {

Status prepare(const Descriptor&, const Device&, State&) { return preload_chain(); }

constexpr Kernel kKernels[] = {{.op = "linear_llm_int8",
                                .arithmetic = name_of(Accumulation::TensorSm90),
                                .body = "outputs",
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {80},
                                .rank = 100,
                                .guarantee = kGuarantee<Accumulation::TensorSm90>,
                                .rejects = rejects<Accumulation::TensorSm90>,
                                .workspace = chain_workspace,
                                .prepare = prepare,
                                .bind = bind_chain}};

}  // namespace
}  // namespace planq::linear_llm_int8

PLANQ_KERNELS(linear_llm_int8, cuda_chain, kKernels);
