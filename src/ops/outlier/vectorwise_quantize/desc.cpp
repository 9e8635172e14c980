#include "ops/outlier/vectorwise_quantize/desc.h"

#include "core/rows.h"
#include "ops/outlier/vectorwise_checks.h"

namespace planq::vectorwise_quantize {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kFloats); !fault.ok())
    return fault;
  if (Fault fault = outlier::check_codes("output_dtype", f.form, f.output_dtype); !fault.ok())
    return fault;
  return outlier::check_axis(f.form, f.shape, f.axis);
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  return rows::of_scope(f.shape, scope_of(f));
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"vectorwise_quantize", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::vectorwise_quantize
