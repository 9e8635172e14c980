// grouped_linear on the host: the gemm of each expert in turn.
#include "host/bind.h"
#include "ops/linear/grouped_linear/desc.h"
#include "ops/linear/grouped_linear/guarantee.h"
#include "ops/linear/host/gemm.h"

namespace planq::grouped_linear {
namespace {

// Rows that belong to no expert.
void clear(const linear::Gemm& gemm, const linear::ExpertRows& rows) {
  const std::int64_t bytes = linear::detail::element_bytes(gemm.output_dtype);
  for (std::int64_t row = rows.first; row < rows.end; ++row)
    std::memset(gemm.output + row * gemm.output_row * bytes, 0,
                static_cast<std::size_t>(gemm.n * bytes));
}

// The gemm of an expert's rows.
void multiply(const linear::Experts& experts, std::int64_t expert, const linear::ExpertRows& rows,
              int threads) {
  linear::Gemm gemm = linear::rows_of(experts.gemm_of(expert), rows.first, rows.end - rows.first);
  const Accumulation accumulation = accumulation_of(gemm.input.dtype);
  if (accumulation == Accumulation::Unset) return host::multiply(gemm, threads);
  linear::WeightCodes codes;
  if (accumulation == Accumulation::GroupsSm90) {
    codes = experts.codes_of(expert);
    gemm.weight.codes = &codes;
  }
  host::multiply_floats(gemm, accumulation, threads);
}

Status compute(const Call& call, const Stream& stream) {
  const linear::Experts experts = experts_of(call);
  std::int64_t end = experts.begin();
  clear(experts.gemm, {0, end});
  for (std::int64_t e = 0; e < experts.count; ++e) {
    const linear::ExpertRows rows = experts.rows_of(e, end);
    end = rows.end;
    multiply(experts, e, rows, stream.threads);
  }
  clear(experts.gemm, {end, experts.gemm.m});
  return Status::success();
}

template <DType kIn, DType kOut>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  return reason.accepted() ? expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype)
                           : reason;
}

template <DType kIn, DType kOut>
constexpr Kernel kernel() {
  return {.op = "grouped_linear",
          .arithmetic = name_of(accumulation_of(kIn)),
          .body = "tiles",
          .dtypes = kDTypes<kIn, kOut>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = guarantee_of<kIn>(),
          .rejects = rejects<kIn, kOut>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute>};
}
template <DType kIn>
constexpr std::array<Kernel, 3> kernels() {
  return {kernel<kIn, DType::Float16>(), kernel<kIn, DType::BFloat16>(),
          kernel<kIn, DType::Float32>()};
}

constexpr auto kKernels =
    joined(kernels<DType::Float16>(), kernels<DType::BFloat16>(), kernels<DType::Int8>(),
           kernels<DType::Float8E4M3FN>(), kernels<DType::Float8E5M2>());

}  // namespace
}  // namespace planq::grouped_linear

PLANQ_KERNELS(grouped_linear, host, kKernels);
