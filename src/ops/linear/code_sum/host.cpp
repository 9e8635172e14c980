// code_sum on the host.
#include "host/elementwise.h"
#include "host/thread_pool.h"
#include "ops/linear/code_sum/desc.h"

namespace planq::code_sum {
namespace {

// What is summed, as lines of codes: `count` terms, `step` codes apart.
struct Lines {
  IndexSpaceOf<2> space;  // of sums: codes of the input, elements of the output
  std::int64_t count = 0, step = 1;
};

Lines lines_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const OperandView &input = call.operands[kInput], &output = call.operands[kOutput];
  const int last = f.shape.rank - 1, axis = static_cast<int>(f.axis);
  const auto codes = [&](int at) -> std::int64_t {
    if (at == last) return 1;
    return is_four_bit(f.input_dtype) ? 2 * input.strides[at] : input.strides[at];
  };
  Lines lines;
  lines.count = f.shape[axis];
  lines.step = codes(axis);
  for (int from = 0, to = 0; from <= last; ++from) {
    if (from == axis) continue;
    AxisOf<2> step;
    step.extent = f.shape[from];
    step.stride = {codes(from), to == output.rank - 1 ? 1 : output.strides[to]};
    lines.space.append(step);
    ++to;
  }
  lines.space.merge();
  return lines;
}

Status compute(const Call& call, const Stream& stream) {
  const DType dtype = call.fields<Fields>().input_dtype;
  const void* input = call.operands[kInput].data;
  auto* output = static_cast<std::int32_t*>(call.operands[kOutput].data);
  const Lines lines = lines_of(call);
  host::parallel_for(stream.threads, lines.space.size(), 1 << 10,
                     [&](std::int64_t first, std::int64_t last) {
                       for (std::int64_t i = first; i < last; ++i) {
                         const auto at = lines.space.offsets(i);
                         std::int32_t sum = 0;
                         for (std::int64_t term = 0; term < lines.count; ++term)
                           sum += math::load_integer(input, at.at[0] + term * lines.step, dtype,
                                                     NibbleOrder::LowFirst);
                         output[at.at[1]] = sum;
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
