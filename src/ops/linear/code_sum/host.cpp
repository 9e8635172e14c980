// code_sum on the host.
#include "host/elementwise.h"
#include "host/thread_pool.h"
#include "ops/linear/code_sum/lines.h"

namespace planq::code_sum {
namespace {

Status compute(const Call& call, const Stream& stream) {
  const DType dtype = call.fields<Fields>().input_dtype;
  const void* input = call.operands[kInput].data;
  auto* output = static_cast<std::int32_t*>(call.operands[kOutput].data);
  const Lines lines = lines_of(call);
  host::parallel_for(stream.threads, lines.space.size() * lines.columns, 1 << 10,
                     [&](std::int64_t first, std::int64_t last) {
                       for (std::int64_t i = first; i < last; ++i) {
                         const auto at = lines.space.offsets(i / lines.columns);
                         const std::int64_t column = i % lines.columns;
                         std::int32_t sum = 0;
                         for (std::int64_t term = 0; term < lines.count; ++term)
                           sum += math::load_integer(input, at.at[0] + column + term * lines.step,
                                                     dtype, NibbleOrder::LowFirst);
                         output[at.at[1] + column] = sum;
                       }
                     });
  return Status::success();
}

Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }

constexpr Kernel kKernels[] = {
    {.op = "code_sum",
     .method = "lines",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 0,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = MathPrecision::Int32,
                   .accumulator = DType::Int32,
                   .rounding = Rounding::None,
                   .max_ulp = 0,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "exact integer sums"},
     .rejects = accept,
     .workspace = host::no_workspace,
     .prepare = host::nothing_to_prepare,
     .bind = host::bind<compute>},
};

}  // namespace
}  // namespace planq::code_sum

PLANQ_KERNELS(code_sum, host, kKernels);
