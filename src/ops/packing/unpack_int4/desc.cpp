#include "ops/packing/unpack_int4/desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::unpack_int4 {

namespace {

constexpr DType kPackable[] = {DType::Int4, DType::UInt4};

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kPackable); !fault.ok())
    return fault;
  return checks::axis("axis", f.axis, f.shape);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"unpack_int4", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::unpack_int4
