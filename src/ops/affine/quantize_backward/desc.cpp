#include "ops/affine/quantize_backward/desc.h"

#include "core/rows.h"
#include "ops/affine/checks.h"

namespace planq::quantize_backward {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kFloats); !fault.ok())
    return fault;
  return checks::given_codes(f);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"quantize_backward", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::quantize_backward
