// linear_fp8 on the host.
#include "core/rejects.h"
#include "host/elementwise.h"
#include "ops/linear/linear_fp8/desc.h"
#include "ops/linear/product_host.h"

namespace planq::linear_fp8 {
namespace {

Status compute(const Call& call, const Stream& stream) {
  host::multiply_floats(product_of(call), call.fields<Fields>().accumulation, stream.threads);
  return Status::success();
}

template <DType kIn, DType kOut>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype);
}

template <DType kIn, DType kOut>
constexpr Kernel make_kernel() {
  return {.op = "linear_fp8",
          .method = name_of(Accumulation::TensorSm90),
          .dtypes = kDTypes<kIn, kOut>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = {.determinism = Determinism::BitExact,
                        .math = kIn == DType::Float8E4M3FN ? MathPrecision::TensorCoreE4M3
                                                           : MathPrecision::TensorCoreE5M2,
                        .accumulator = DType::Float32,
                        .rounding = Rounding::NearestEven,
                        .max_ulp = 0,
                        .error_bound = kNoErrorBound,
                        .batch_invariant = true,
                        .basis = "tensor cores of sm_90 as measured, computed exactly; slices of "
                                 "128 terms added up in order"},
          .rejects = rejects<kIn, kOut>,
          .workspace = host::no_workspace,
          .prepare = host::nothing_to_prepare,
          .bind = host::bind<compute>};
}

template <DType kIn>
constexpr std::array<Kernel, 3> kernels_of() {
  return {make_kernel<kIn, DType::Float16>(), make_kernel<kIn, DType::BFloat16>(),
          make_kernel<kIn, DType::Float32>()};
}

constexpr auto kKernels =
    joined(kernels_of<DType::Float8E4M3FN>(), kernels_of<DType::Float8E5M2>());

}  // namespace
}  // namespace planq::linear_fp8

PLANQ_KERNELS(linear_fp8, host, kKernels);
