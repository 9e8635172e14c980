#include "ops/group/group_dequantize/desc.h"

#include "core/rows.h"
#include "ops/group/checks.h"

namespace planq::group_dequantize {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::group_convention(f.convention, f.mode, "input_dtype", f.input_dtype);
      !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kGroupElements);
      !fault.ok())
    return fault;
  return checks::group_size(f.group_size);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"group_dequantize", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::group_dequantize
