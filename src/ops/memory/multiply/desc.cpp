#include "ops/memory/multiply/desc.h"

#include "core/checks.h"
#include "core/rows.h"
#include "ops/memory/numbers.h"

namespace planq::multiply {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  return checks::dtype("input_dtype", f.input_dtype, memory::kElements);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"multiply", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::multiply
