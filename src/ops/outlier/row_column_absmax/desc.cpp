#include "ops/outlier/row_column_absmax/desc.h"

#include "core/checks.h"
#include "core/rows.h"
#include "ops/outlier/coo.h"

namespace planq::row_column_absmax {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, outlier::kElements); !fault.ok())
    return fault;
  return outlier::check_threshold(f.threshold);
}

Reason rows_of(const Descriptor&) {
  return rows::share("maxima of columns are of all rows together");
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"row_column_absmax", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::row_column_absmax
