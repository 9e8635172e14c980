#include "ops/outlier/coo_to_csr/desc.h"

#include "core/checks.h"
#include "core/rows.h"
#include "ops/outlier/coo.h"

namespace planq::coo_to_csr {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  return outlier::check_capacity(f.capacity);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"coo_to_csr", kFields, kOperands, resolve, rows::together, kTables};

}  // namespace planq::coo_to_csr
