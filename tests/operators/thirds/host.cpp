#include "../plain.h"
#include "desc.h"
#include "host/bind.h"

namespace planq::thirds {
namespace {

Status quotients(const Call& call, const Stream&) {
  const Shape& shape = call.fields<Fields>().shape;
  const OperandView &input = call.operands[0], &output = call.operands[1];
  for (std::int64_t row = 0; row < shape[0]; ++row)
    for (std::int64_t i = 0; i < shape[1]; ++i)
      static_cast<float*>(output.data)[row * output.strides[0] + i] =
          static_cast<const float*>(input.data)[row * input.strides[0] + i] / 3;
  return Status::success();
}

// Pairs of rows of an input without gaps.
Status products(const Call& call, const Stream&) {
  const Shape& shape = call.fields<Fields>().shape;
  const OperandView& output = call.operands[1];
  const float* input = static_cast<const float*>(call.operands[0].data);
  for (std::int64_t row = 0; row < shape[0]; row += 2)
    for (std::int64_t i = 0; i < 2 * shape[1]; ++i)
      static_cast<float*>(output.data)[(row + i / shape[1]) * output.strides[0] + i % shape[1]] =
          *input++ * (1.0f / 3);
  return Status::success();
}

constexpr Constraint kPairs[] = {
    {Constraint::Kind::Alignment, 0, -1, 64},
    {Constraint::Kind::Contiguous, 0},
    {Constraint::Kind::Divisible, 1, 0, 2},
};

// An architecture's own kernel, for what selection says of others.
Reason only_known_by_name(const Descriptor&, const Device&) {
  return Reason::refuse(ReasonKind::Feature, "has no code in any build");
}

constexpr Kernel kKernels[] = {
    // fl(1 / 3) is off by a relative 2^-25, which is at most half a ulp of the product; the product
    // is rounded by another half, and the quotient by a half: together less than two, so one.
    {.op = "thirds",
     .arithmetic = "products",
     .body = "elements",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 0,
     .guarantee = {.determinism = Determinism::GpuToGpu,
                   .math = MathPrecision::F32,
                   .accumulator = DType::Float32,
                   .rounding = Rounding::None,
                   .max_ulp = 1,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "one product with a third"},
     .rejects = plain::accept,
     .workspace = no_workspace,
     .prepare = nothing_to_prepare,
     .bind = host::bind<products>,
     .constraints = kPairs},
    {.op = "thirds",
     .arithmetic = "quotients",
     .body = "elements",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 1,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = MathPrecision::F32,
                   .accumulator = DType::Float32,
                   .rounding = Rounding::None,
                   .max_ulp = 0,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "IEEE division"},
     .rejects = plain::accept,
     .workspace = no_workspace,
     .prepare = nothing_to_prepare,
     .bind = host::bind<quotients>},
    {.op = "thirds",
     .arithmetic = "quotients",
     .body = "elements",
     .revision = 1,
     .backend = Backend::Cuda,
     .arch = {80, 89},
     .rank = 2,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = MathPrecision::F32,
                   .accumulator = DType::Float32,
                   .rounding = Rounding::None,
                   .max_ulp = 0,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "IEEE division"},
     .rejects = only_known_by_name,
     .workspace = no_workspace,
     .prepare = nothing_to_prepare,
     .bind = host::bind<quotients>},
};

}  // namespace
}  // namespace planq::thirds

PLANQ_KERNELS(thirds, host, kKernels);
