#include "ops/norm/rms_norm/desc.h"

#include "core/rows.h"

namespace planq::rms_norm {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = norm::resolve_own(f); !fault.ok()) return fault;
  return norm::resolve_codes(descriptor, f);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"rms_norm", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::rms_norm
