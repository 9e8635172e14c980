#include "ops/outlier/double_quantize/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"
#include "ops/outlier/coo.h"

namespace planq::double_quantize {

namespace {

// Indices of outliers are int32.
Fault check_extents(const Shape& shape) {
  if (outlier::rows_of(shape) <= outlier::kMostIndices && shape.last() <= outlier::kMostIndices)
    return {};
  return {"shape", "expected at most 2^31 - 1 rows and columns, got " +
                       std::to_string(outlier::rows_of(shape)) + " and " +
                       std::to_string(shape.last())};
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = check_extents(f.shape); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, outlier::kElements); !fault.ok())
    return fault;
  if (Fault fault = outlier::check_threshold(f.threshold); !fault.ok()) return fault;
  return outlier::check_capacity(f.capacity);
}

Reason rows_of(const Descriptor&) {
  return rows::share("maxima of columns are of all rows together");
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"double_quantize", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::double_quantize
