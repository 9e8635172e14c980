#include "ops/packing/pack_int4/desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::pack_int4 {

namespace {

constexpr DType kPackable[] = {DType::Int4, DType::UInt4};

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, kPackable); !fault.ok())
    return fault;
  return checks::axis("axis", f.axis, f.shape);
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (f.axis == f.shape.rank - 1) return Reason::accept();
  return rows::share("bytes hold codes of two rows");
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"pack_int4", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::pack_int4
