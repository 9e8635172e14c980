// grouped_linear on any GPU: an output a thread, by the functions of the host.
#include "ops/linear/grouped_linear/desc.h"
#include "ops/linear/grouped_linear/guarantee.h"
#include "ops/linear/grouped_linear/launch.h"
#include "ops/linear/simt/coded_rows.cuh"

namespace planq::grouped_linear {
namespace {

struct Args {
  linear::Experts experts;
  linear::CodesArgs codes;  // of the first expert
  std::int64_t outputs;
};

// The output of an expert's row before its rounding, by types of both sides.

// Floating numbers of type T and weights that are codes.
template <class T>
struct Weights {
  static __device__ float output(const Args& args, std::int64_t expert, std::int64_t row,
                                 std::int64_t column) {
    const linear::Gemm gemm = args.experts.gemm_of(expert);
    linear::CodesArgs own = args.codes;
    own.codes = args.experts.codes_of(expert);
    const float sum =
        linear::run_sum<T>(own, gemm.k, linear::NumberRow<T>(gemm.input, row), column);
    return linear::finished(gemm, row, column, sum, 1.0f, linear::FloatColumn(gemm, column));
  }
};

// Floating codes of 8 bits.
struct Floats {
  static __device__ float output(const Args& args, std::int64_t expert, std::int64_t row,
                                 std::int64_t column) {
    const linear::Gemm gemm = args.experts.gemm_of(expert);
    const linear::Float8Row a(gemm.input, row), w(gemm.weight, column);
    using Core = math::TensorCore8;
    const float sum =
        gemm.joins_by_scales
            ? math::tensor_core_sum<Core>(a, w, gemm.k, linear::ScaledSlices(gemm, row, column))
            : math::tensor_core_sum<Core>(a, w, gemm.k);
    return linear::finished(gemm, row, column, sum, linear::row_scale(gemm, row),
                            linear::FloatColumn(gemm, column));
  }
};

struct Integers {
  static __device__ float output(const Args& args, std::int64_t expert, std::int64_t row,
                                 std::int64_t column) {
    const linear::Gemm gemm = args.experts.gemm_of(expert);
    std::int32_t sum = 0;
    for (std::int64_t k = 0; k < gemm.k; ++k)
      sum += gemm.input.code(row, k) * gemm.weight.code(column, k);
    const linear::Epilogue& e = gemm.epilogue;
    return linear::finish(sum, linear::row_term<float>(e, row),
                          linear::column_term<float>(e, column), e, 0.0f);
  }
};

// An output of a row without an expert is 0.
template <class Types>
__global__ void __launch_bounds__(linear::kFloatThreads)
    compute_experts(const __grid_constant__ Args args) {
  const linear::Gemm& gemm = args.experts.gemm;
  const std::int64_t step = std::int64_t{gridDim.x} * linear::kFloatThreads;
#pragma unroll 1
  for (std::int64_t i = std::int64_t{blockIdx.x} * linear::kFloatThreads + threadIdx.x;
       i < args.outputs; i += step) {
    const std::int64_t row = i / gemm.n, column = i % gemm.n;
    const std::int64_t expert = args.experts.expert_of(row);
    const float y = expert < 0 ? 0.0f : Types::output(args, expert, row, column);
    linear::store_output(gemm, row, column, y);
  }
}

// Calls visit(kernel) for the kernel of an input.
template <class Visit>
Status visit_kernel(DType input, const Visit& visit) {
  switch (input) {
    case DType::Float16:
      return visit(compute_experts<Weights<math::Half>>);
    case DType::BFloat16:
      return visit(compute_experts<Weights<math::Bfloat16>>);
    case DType::Int8:
      return visit(compute_experts<Integers>);
    default:
      return visit(compute_experts<Floats>);
  }
}

Status prepare(const Descriptor& descriptor, const Device&, State&) {
  return preload_outputs(descriptor.as<Fields>().input_dtype);
}

Status bind(const Call& call, Bound& bound) { return launch_outputs(experts_of(call), bound); }

template <DType kIn>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kIn, descriptor.as<Fields>().input_dtype);
}

template <DType kIn>
constexpr Kernel kernel() {
  return {.op = "grouped_linear",
          .arithmetic = name_of(accumulation_of(kIn)),
          .body = "outputs",
          .dtypes = kDTypes<kIn>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 100,
          .guarantee = guarantee_of<kIn>(),
          .rejects = rejects<kIn>,
          .workspace = no_workspace,
          .prepare = prepare,
          .bind = bind};
}

constexpr std::array kKernels{kernel<DType::Float16>(), kernel<DType::BFloat16>(),
                              kernel<DType::Int8>(), kernel<DType::Float8E4M3FN>(),
                              kernel<DType::Float8E5M2>()};

}  // namespace

Status preload_outputs(DType input) {
  return visit_kernel(input, [](auto kernel) { return cuda::preload(kernel); });
}

Status launch_outputs(const linear::Experts& experts, Bound& bound) {
  const linear::Gemm& gemm = experts.gemm;
  if (gemm.empty()) return Status::success();
  const Args args{experts, linear::CodesArgs(experts.codes), gemm.m * gemm.n};
  return visit_kernel(gemm.input.dtype,
                      [&](auto kernel) { return linear::launch_outputs(kernel, args, 1, bound); });
}

}  // namespace planq::grouped_linear

PLANQ_KERNELS(grouped_linear, cuda, kKernels);
