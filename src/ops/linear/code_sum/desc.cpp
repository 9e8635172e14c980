#include "ops/linear/code_sum/desc.h"

#include <algorithm>

#include "core/rows.h"
#include "core/scope.h"

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

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  Shape sums = f.shape;
  sums.rank -= 1;
  if (f.axis < sums.rank) sums[sums.rank - 1] = f.shape.last();
  sums[sums.rank] = 0;
  specs[kInput].expect(f.input_dtype, packed_shape(f.shape, f.input_dtype));
  specs[kOutput].expect(DType::Int32, sums);
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (f.axis == f.shape.rank - 1) return Reason::accept();
  return rows::share("sums are of all rows together");
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"code_sum", kFields, kOperands, resolve, specify, rows_of, kTables};

}  // namespace planq::code_sum
