// grouped_linear on any GPU: an output a thread, by the functions of the host.
#include "ops/linear/grouped_linear/desc.h"
#include "ops/linear/grouped_linear/launch.h"
#include "ops/linear/simt/coded_rows.cuh"
#include "ops/linear/tables/float_kernels.h"

namespace planq::grouped_linear {
namespace {

struct Args {
  linear::Experts experts;
  linear::CodesArgs codes;  // of the first expert
  std::int64_t outputs;
};

// The sum of an output, finished; 0 of a row without an expert.
template <class T>
__device__ void store_output(const Args& args, std::int64_t row, std::int64_t column) {
  const linear::Experts& experts = args.experts;
  const std::int64_t expert = experts.expert_of(row);
  linear::Gemm gemm = experts.gemm;
  if (expert < 0) {
    linear::store_output(gemm, row, column, 0.0f);
    return;
  }
  gemm.epilogue.bias = experts.bias_of(expert);
  linear::CodesArgs own = args.codes;
  own.codes = experts.codes_of(expert);
  const float sum = linear::run_sum<T>(own, gemm.k, linear::NumberRow<T>(gemm.input, row), column);
  linear::store_output(
      gemm, row, column,
      linear::finished(gemm, row, column, sum, 1.0f, linear::FloatColumn(gemm, column)));
}

template <class T>
__global__ void __launch_bounds__(linear::kFloatThreads)
    compute_experts(const __grid_constant__ Args args) {
  const std::int64_t step = std::int64_t{gridDim.x} * linear::kFloatThreads;
#pragma unroll 1
  for (std::int64_t i = std::int64_t{blockIdx.x} * linear::kFloatThreads + threadIdx.x;
       i < args.outputs; i += step)
    store_output<T>(args, i / args.experts.gemm.n, i % args.experts.gemm.n);
}

Status prepare(const Descriptor&, const Device&, State&) { return preload_outputs(); }

Status bind(const Call& call, Bound& bound) { return launch_outputs(experts_of(call), bound); }

template <DType kIn>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kIn, descriptor.as<Fields>().input_dtype);
}

template <DType kIn>
constexpr Kernel kernel() {
  return {.op = "grouped_linear",
          .arithmetic = name_of(Accumulation::GroupsSm90),
          .body = "outputs",
          .dtypes = kDTypes<kIn>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 100,
          .guarantee = linear::kFloatGuarantee<Accumulation::GroupsSm90, kIn>,
          .rejects = rejects<kIn>,
          .workspace = no_workspace,
          .prepare = prepare,
          .bind = bind};
}

constexpr std::array kKernels{kernel<DType::Float16>(), kernel<DType::BFloat16>()};

}  // namespace

Status preload_outputs() {
  PLANQ_TRY(cuda::preload(compute_experts<math::Half>));
  return cuda::preload(compute_experts<math::Bfloat16>);
}

Status launch_outputs(const linear::Experts& experts, Bound& bound) {
  if (experts.gemm.empty()) return Status::success();
  const Args args{experts, linear::CodesArgs(experts.codes), experts.gemm.m * experts.gemm.n};
  return experts.codes.values == DType::Float16
             ? linear::launch_outputs(compute_experts<math::Half>, args, 1, bound)
             : linear::launch_outputs(compute_experts<math::Bfloat16>, args, 1, bound);
}

}  // namespace planq::grouped_linear

PLANQ_KERNELS(grouped_linear, cuda, kKernels);
