#include "ops/outlier/coo_to_csc/desc.h"

#include "core/checks.h"
#include "core/rows.h"
#include "ops/outlier/magnitudes.h"

namespace planq::coo_to_csc {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = outlier::check_capacity(f.capacity); !fault.ok()) return fault;
  return checks::dtype("value_dtype", f.value_dtype, outlier::kElements);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"coo_to_csc", kFields, kOperands, resolve, rows::together, kTables};

}  // namespace planq::coo_to_csc
