#include "desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::noop {

namespace {

constexpr DType kOutputs[] = {DType::Int8, DType::UInt8};

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kFloats); !fault.ok())
    return fault;
  return checks::dtype("output_dtype", f.output_dtype, kOutputs);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"noop", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::noop
