#include "ops/outlier/transform_layout/desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::transform_layout {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 2); !fault.ok()) return fault;
  return checks::dtype("dtype", f.dtype, kIntegers);
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (f.to_layout == Layout::Row && f.from_layout == Layout::Row && !f.transpose)
    return Reason::accept();
  return rows::share("places in a layout depend on all rows");
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"transform_layout", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::transform_layout
