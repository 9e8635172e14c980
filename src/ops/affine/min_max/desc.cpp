#include "ops/affine/min_max/desc.h"

#include "core/rows.h"
#include "ops/affine/checks.h"

namespace planq::min_max {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kFloats); !fault.ok())
    return fault;
  return checks::scope(f.scope, f.shape);
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  return rows::of_scope(f.shape, f.scope);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"min_max", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::min_max
