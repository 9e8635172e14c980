#include "../plain.h"
#include "desc.h"
#include "host/bind.h"

namespace planq::tally {
namespace {

// Whatever byte but 0 memory holds is true.
bool flag_of(const OperandView& view) {
  return view.data ? *static_cast<const std::uint8_t*>(view.data) != 0 : view.value != 0;
}

Status compute(const Call& call, const Stream&) {
  const Shape& shape = call.fields<Fields>().shape;
  const OperandView &rows = call.operands[kRows], &copy = call.operands[kCopy];
  const bool negative = flag_of(call.operands[kNegative]);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    for (std::int64_t j = 0; j < shape[1]; ++j) {
      const float value =
          rows.data ? static_cast<const float*>(rows.data)[i * rows.strides[0] + j] : 0.0f;
      if (copy.data) static_cast<float*>(copy.data)[i * copy.strides[0] + j] = value;
      count += rows.data && (value < 0) == negative;
    }
  }
  *static_cast<std::int64_t*>(call.operands[kCount].data) = count;
  *static_cast<std::int64_t*>(call.operands[kSize].data) = shape.elements();
  *static_cast<std::uint8_t*>(call.operands[kFound].data) = count > 0;
  return Status::success();
}

constexpr Kernel kKernels[] = {
    {.op = "tally",
     .body = "elements",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 0,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = MathPrecision::None,
                   .accumulator = DType::Int64,
                   .rounding = Rounding::None,
                   .max_ulp = 0,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "comparisons, counted"},
     .rejects = plain::accept,
     .workspace = no_workspace,
     .prepare = nothing_to_prepare,
     .bind = host::bind<compute>},
};

}  // namespace
}  // namespace planq::tally

PLANQ_KERNELS(tally, host, kKernels);
