#include "../plain.h"
#include "arithmetic.h"
#include "cuda/launch.cuh"
#include "desc.h"

namespace planq::step14 {
namespace {

// A launch of its own: every block of the other one reads the count.
__global__ void count_step(Arguments arguments) {
  if (!arguments.skips()) *arguments.step += 1;
}

__global__ void update_elements(Arguments arguments) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < arguments.rows * arguments.columns && !arguments.skips())
    update(arguments, i / arguments.columns, i % arguments.columns);
}

Status load(const Descriptor&, const Device&, State&) {
  const Status status = cuda::preload(count_step);
  return status.ok() ? cuda::preload(update_elements) : status;
}

Status bind(const Call& call, Bound& bound) {
  const Arguments arguments = arguments_of(call);
  if (const Status status = cuda::launch(count_step, {1, dim3(1)}, arguments, bound); !status.ok())
    return status;
  constexpr int kThreads = 128;
  const std::int64_t blocks = (arguments.rows * arguments.columns + kThreads - 1) / kThreads;
  if (blocks == 0) return Status::success();
  return cuda::launch(update_elements, {blocks, dim3(kThreads)}, arguments, bound);
}

// One block for each 128 elements.
Reason fits_a_grid(const Descriptor& descriptor, const Device&) {
  constexpr std::int64_t kMost = std::int64_t{1} << 37;
  if (descriptor.as<Fields>().shape.elements() <= kMost) return Reason::accept();
  return Reason::refuse(ReasonKind::Shape, "takes at most ", kMost, " elements");
}

constexpr Kernel kKernels[] = {
    {.op = "step14",
     .body = "elements",
     .revision = 1,
     .backend = Backend::Cuda,
     .arch = {80},
     .rank = 0,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = MathPrecision::F64,
                   .accumulator = DType::Float32,
                   .rounding = Rounding::NearestEven,
                   .max_ulp = 0,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "IEEE float64 arithmetic, element by element"},
     .rejects = fits_a_grid,
     .workspace = no_workspace,
     .prepare = load,
     .bind = bind},
};

}  // namespace
}  // namespace planq::step14

PLANQ_KERNELS(step14, cuda, kKernels);
