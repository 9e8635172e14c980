#include "ops/linear/code_sum/desc.h"

#include "core/rows.h"

namespace planq::code_sum {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kIntegerCodes); !fault.ok())
    return fault;
  if (Fault fault = checks::axis("axis", f.axis, f.shape); !fault.ok()) return fault;
  if (f.axis < f.shape.rank - 2)
    return {"axis", "expected one of the two last axes, got axis " + std::to_string(f.axis) +
                        " of " + std::to_string(f.shape.rank)};
  return checks::sum_in_range("shape", f.shape[static_cast<int>(f.axis)],
                              checks::largest_code(f.input_dtype, Mode::Symmetric));
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (f.axis == f.shape.rank - 1) return Reason::accept();
  return rows::share("sums are of all rows together");
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"code_sum", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::code_sum
