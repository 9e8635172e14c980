#include "ops/group/group_dequantize/desc.h"

#include "core/rows.h"
#include "ops/group/checks.h"

namespace planq::group_dequantize {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::group_convention(f.convention, f.mode, "input_dtype", f.input_dtype);
      !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kGroupElements);
      !fault.ok())
    return fault;
  return checks::group_size(f.group_size);
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  specs[kInput].expect(f.input_dtype, codes_shape(f.shape, f.input_dtype));
  specs[kOutput].expect(f.output_dtype, f.shape);
  expect_parameters(grouping_of(f), f.output_dtype, specs[kParameters], specs[kScale],
                    specs[kMinimum]);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"group_dequantize", kFields, kOperands, resolve, specify,
                            rows::apart,        kTables};

}  // namespace planq::group_dequantize
