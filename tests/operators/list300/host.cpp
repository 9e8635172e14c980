#include <algorithm>

#include "../plain.h"
#include "core/scalar.h"
#include "core/scratch.h"
#include "desc.h"
#include "host/bind.h"

namespace planq::list300 {
namespace {

// Members are dense, so a member is as many elements as its shape has.
double update(float* parameter, const float* gradient, std::int64_t count, double rate) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += parameter[i];
    parameter[i] = static_cast<float>(parameter[i] - rate * gradient[i]);
  }
  return sum;
}

void update_all(const Call& call, double* sums) {
  const ShapeList& shapes = call.fields<Fields>().shapes;
  const OperandView &parameters = call.operands[0], &gradients = call.operands[1];
  const double rate = real_of(call.operands[2]).get();
  for (std::int64_t i = 0; i < shapes.count; ++i)
    sums[i] = update(static_cast<float*>(parameters.members[i].data),
                     static_cast<const float*>(gradients.members[i].data),
                     shapes.data[i].elements(), rate);
}

Status directly(const Call& call, const Stream&) {
  update_all(call, static_cast<double*>(call.operands[3].data));
  return Status::success();
}

// Sums in the workspace first.
double* book(const Descriptor& descriptor, Scratch& scratch) {
  return scratch.take<double>(static_cast<std::size_t>(descriptor.as<Fields>().shapes.count));
}
std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch counting;
  book(descriptor, counting);
  return counting.bytes();
}
Status staged(const Call& call, const Stream&) {
  Scratch carving(call.workspace);
  double* sums = book(call.descriptor, carving);
  update_all(call, sums);
  std::copy_n(sums, call.fields<Fields>().shapes.count,
              static_cast<double*>(call.operands[3].data));
  return Status::success();
}

constexpr Constraint kAligned[] = {{Constraint::Kind::Alignment, 1, -1, 16}};

constexpr Kernel kKernels[] = {
    {.op = "list300",
     .body = "members",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 0,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = MathPrecision::F64,
                   .accumulator = DType::Float64,
                   .rounding = Rounding::NearestEven,
                   .max_ulp = 0,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "IEEE float64 arithmetic, members and elements in order"},
     .rejects = plain::accept,
     .workspace = no_workspace,
     .prepare = nothing_to_prepare,
     .bind = host::bind<directly>},
    {.op = "list300",
     .body = "staged",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 1,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = MathPrecision::F64,
                   .accumulator = DType::Float64,
                   .rounding = Rounding::NearestEven,
                   .max_ulp = 0,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "IEEE float64 arithmetic, members and elements in order"},
     .rejects = plain::accept,
     .workspace = workspace,
     .prepare = nothing_to_prepare,
     .bind = host::bind<staged>,
     .constraints = kAligned},
};

}  // namespace
}  // namespace planq::list300

PLANQ_KERNELS(list300, host, kKernels);
