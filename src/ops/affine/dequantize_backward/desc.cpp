#include "ops/affine/dequantize_backward/desc.h"

#include "core/rows.h"
#include "ops/affine/checks.h"

namespace planq::dequantize_backward {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kFloats); !fault.ok())
    return fault;
  if (Fault fault = checks::scope(f.scope, f.shape); !fault.ok()) return fault;
  return checks::scale_dtype(f.output_dtype, f.scale_dtype);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"dequantize_backward", kFields, kOperands, resolve,
                            rows::apart,           kTables};

}  // namespace planq::dequantize_backward
