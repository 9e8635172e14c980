#include "ops/outlier/extract_outliers/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::extract_outliers {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 2); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("dtype", f.dtype, kIntegers); !fault.ok()) return fault;
  if (f.capacity < 0) return {"capacity", "expected at least 0, got " + std::to_string(f.capacity)};
  // The output has another shape than the input, so it is checked too.
  return checks::shape("capacity", output_shape(f), 2);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"extract_outliers", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::extract_outliers
