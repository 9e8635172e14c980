#include "ops/statistics/norm/desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::norm {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  return checks::dtype("input_dtype", f.input_dtype, checks::kFloats);
}

// A maximum of magnitudes rounds nothing.
void promise(const Descriptor& descriptor, Guarantee& guarantee) {
  if (descriptor.as<Fields>().p != NormOrder::Infinity) return;
  guarantee.math.value = MathPrecision::None;
  guarantee.rounding.value = Rounding::None;
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"norm", kFields, kOperands, resolve, rows::together, kTables, promise};

}  // namespace planq::norm
