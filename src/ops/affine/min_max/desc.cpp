#include "ops/affine/min_max/desc.h"

#include "core/rows.h"
#include "ops/affine/checks.h"

namespace planq::min_max {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kFloats); !fault.ok())
    return fault;
  return checks::scope(f.scope, f.shape);
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  const Shape parameters = parameter_shape(f.shape, f.scope);
  const DType results = compute_dtype(f.input_dtype);
  specs[kInput].expect(f.input_dtype, f.shape);
  const auto range_end = [&](Operand output, Operand previous, bool present) {
    specs[output].expect(results, parameters, present);
    specs[previous].expect(results, parameters, present && f.update);
    if (f.update) specs[output].same_as = previous;
  };
  const bool symmetric = f.mode == Mode::Symmetric;
  range_end(kAbsmax, kPreviousAbsmax, symmetric);
  range_end(kMinimum, kPreviousMinimum, !symmetric);
  range_end(kMaximum, kPreviousMaximum, !symmetric);
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  return rows::of_scope(f.shape, f.scope);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"min_max", kFields, kOperands, resolve, specify, rows_of, kTables};

}  // namespace planq::min_max
