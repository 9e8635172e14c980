#include "ops/memory/arange/desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::arange {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  return checks::dtype("output_dtype", f.output_dtype, memory::kElements);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"arange", kFields, kOperands, resolve, rows::together, kTables};

}  // namespace planq::arange
