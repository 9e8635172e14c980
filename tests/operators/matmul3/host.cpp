#include "../plain.h"
#include "desc.h"
#include "host/bind.h"

namespace planq::matmul3 {
namespace {

float sum_in_order(const float* a, const float* b, std::int64_t terms) {
  float sum = 0;
  for (std::int64_t i = 0; i < terms; ++i) sum += a[i] * b[i];
  return sum;
}

// Four sums side by side, added at the end.
float sum_by_fours(const float* a, const float* b, std::int64_t terms) {
  float sums[4] = {};
  for (std::int64_t i = 0; i < terms; ++i) sums[i % 4] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

using Sum = float (*)(const float*, const float*, std::int64_t);

template <Sum kSum>
Status multiply(const Call& call, const Stream&) {
  const Fields& f = call.fields<Fields>();
  const OperandView &a = call.operands[0], &b = call.operands[1], &output = call.operands[2];
  const std::int64_t terms = f.a_shape[1];
  for (std::int64_t row = 0; row < f.output_shape[0]; ++row)
    for (std::int64_t column = 0; column < f.output_shape[1]; ++column)
      static_cast<float*>(output.data)[row * output.strides[0] + column] =
          kSum(static_cast<const float*>(a.data) + row * a.strides[0],
               static_cast<const float*>(b.data) + column * b.strides[0], terms);
  return Status::success();
}

// Each of K terms has at most K roundings on its way, in any order, each of half an epsilon; that
// their product is no more than their sum is shown by Jeannerod and Rump (SIAM J. Matrix Anal.
// Appl. 34, 2013).
constexpr ErrorBound kAnyOrder{
    .constant = 0, .per_term = 0.5, .epsilon = 0x1p-23, .output_rounding = false, .terms = terms};

constexpr Guarantee kInOrder = {.determinism = Determinism::BitExact,
                                .math = MathPrecision::F32,
                                .accumulator = DType::Float32,
                                .rounding = Rounding::None,
                                .max_ulp = 0,
                                .error_bound = kNoErrorBound,
                                .batch_invariant = true,
                                .basis = "one float32 sum in the order of terms"};

// A body for small products, which leaves operands that it cannot read to the other.
constexpr std::int64_t kFewRows = 4;
Reason takes_few(const Descriptor& descriptor, const Device&) {
  const std::int64_t rows = descriptor.as<Fields>().a_shape[0];
  if (rows <= kFewRows) return Reason::accept();
  return Reason::refuse(ReasonKind::Shape, "has up to ", kFewRows, " rows, not ", rows);
}
Status bind_few(const Call& call, Bound& bound) {
  if (reinterpret_cast<std::uintptr_t>(call.operands[0].data) % 16 != 0) bound.name_body("rows");
  return host::bind<multiply<sum_in_order>>(call, bound);
}

constexpr Kernel kKernels[] = {
    {.op = "matmul3",
     .arithmetic = "by_fours",
     .body = "rows",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 0,
     .guarantee = {.determinism = Determinism::RunToRun,
                   .math = MathPrecision::F32,
                   .accumulator = DType::Float32,
                   .rounding = Rounding::None,
                   .max_ulp = kUlpUnknown,
                   .error_bound = kAnyOrder,
                   .batch_invariant = true,
                   .basis = "four float32 sums of every fourth term, then their sum"},
     .rejects = plain::accept,
     .workspace = no_workspace,
     .prepare = nothing_to_prepare,
     .bind = host::bind<multiply<sum_by_fours>>},
    {.op = "matmul3",
     .arithmetic = "in_order",
     .body = "few",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 1,
     .guarantee = kInOrder,
     .rejects = takes_few,
     .workspace = no_workspace,
     .prepare = nothing_to_prepare,
     .bind = bind_few},
    {.op = "matmul3",
     .arithmetic = "in_order",
     .body = "rows",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 2,
     .guarantee = kInOrder,
     .rejects = plain::accept,
     .workspace = no_workspace,
     .prepare = nothing_to_prepare,
     .bind = host::bind<multiply<sum_in_order>>},
};

}  // namespace
}  // namespace planq::matmul3

PLANQ_KERNELS(matmul3, host, kKernels);
