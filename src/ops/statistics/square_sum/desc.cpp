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

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"square_sum", kFields, kOperands, resolve, rows::together, kTables};

}  // namespace planq::square_sum
