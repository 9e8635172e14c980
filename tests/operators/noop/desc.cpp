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

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  specs[0].expect(f.input_dtype, f.shape);
  specs[1].expect(f.output_dtype, f.shape);
  specs[2].expect(DType::Float32, {1, {1}});
  specs[3].expect(DType::Int32, {1, {1}});
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"noop", kFields, kOperands, resolve, specify, rows::apart, kTables};

}  // namespace planq::noop
