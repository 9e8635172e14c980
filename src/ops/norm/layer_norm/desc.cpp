#include "ops/norm/layer_norm/desc.h"

#include "core/rows.h"

namespace planq::layer_norm {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = norm::resolve_own(f); !fault.ok()) return fault;
  if (f.bias_dtype != DType::Unset)
    if (Fault fault = checks::dtype("bias_dtype", f.bias_dtype, norm::kTypes); !fault.ok())
      return fault;
  return norm::resolve_codes(descriptor, f);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"layer_norm", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::layer_norm
