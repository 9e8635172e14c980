#include "ops/outlier/vectorwise_dequantize/desc.h"

#include "core/rows.h"
#include "ops/outlier/vectorwise_checks.h"

namespace planq::vectorwise_dequantize {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = outlier::check_codes("input_dtype", f.form, f.input_dtype); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kFloats); !fault.ok())
    return fault;
  return outlier::check_axis(f.form, f.shape, f.axis);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "vectorwise_dequantize", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::vectorwise_dequantize
