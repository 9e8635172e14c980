#include "../plain.h"
#include "arithmetic.h"
#include "desc.h"
#include "host/bind.h"

namespace planq::step14 {
namespace {

Status compute(const Call& call, const Stream&) {
  const Arguments arguments = arguments_of(call);
  if (arguments.skips()) return Status::success();
  *arguments.step += 1;
  for (std::int64_t row = 0; row < arguments.rows; ++row)
    for (std::int64_t column = 0; column < arguments.columns; ++column)
      update(arguments, row, column);
  return Status::success();
}

constexpr Kernel kKernels[] = {
    {.op = "step14",
     .body = "rows",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 0,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = MathPrecision::F64,
                   .accumulator = DType::Float32,
                   .rounding = Rounding::NearestEven,
                   .max_ulp = 0,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "IEEE float64 arithmetic, element by element"},
     .rejects = plain::accept,
     .workspace = no_workspace,
     .prepare = nothing_to_prepare,
     .bind = host::bind<compute>},
};

}  // namespace
}  // namespace planq::step14

PLANQ_KERNELS(step14, host, kKernels);
