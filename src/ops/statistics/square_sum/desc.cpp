#include "ops/statistics/square_sum/desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::square_sum {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  return checks::dtype("input_dtype", f.input_dtype, checks::kFloats);
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  specs[kInput].expect(f.input_dtype, f.shape);
  specs[kOutput].expect(compute_dtype(f.input_dtype), {1, {1}});
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"square_sum", kFields,        kOperands, resolve,
                            specify,      rows::together, kTables};

}  // namespace planq::square_sum
