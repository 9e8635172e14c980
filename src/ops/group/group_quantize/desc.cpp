#include "ops/group/group_quantize/desc.h"

#include "core/rows.h"
#include "ops/group/checks.h"

namespace planq::group_quantize {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kGroupElements);
      !fault.ok())
    return fault;
  if (Fault fault = checks::group_convention(f.convention, f.mode, "output_dtype", f.output_dtype);
      !fault.ok())
    return fault;
  return checks::group_size(f.group_size);
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  return rows::any_of(
      rows::of_bytes(f.shape, f.output_dtype),
      f.parameters_given ? Reason::accept() : rows::of_pieces(f.shape, f.group_size));
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"group_quantize", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::group_quantize
