#include "ops/elementwise/add/desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::add {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (f.other_dtype == DType::Unset) f.other_dtype = f.input_dtype;
  if (f.output_dtype == DType::Unset) f.output_dtype = f.input_dtype;
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, elementwise::kTypes); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("other_dtype", f.other_dtype, elementwise::kTypes); !fault.ok())
    return fault;
  return checks::dtype("output_dtype", f.output_dtype, elementwise::kTypes);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"add", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::add
