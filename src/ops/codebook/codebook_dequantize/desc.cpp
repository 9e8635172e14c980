#include "ops/codebook/codebook_dequantize/desc.h"

#include "core/rows.h"
#include "ops/codebook/checks.h"

namespace planq::codebook_dequantize {

namespace {

Fault resolve(Descriptor& descriptor) { return checks::codebook_values(descriptor.as<Fields>()); }

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  specs[kInput].expect(f.input_dtype, codes_shape(f.shape, f.input_dtype));
  specs[kOutput].expect(f.output_dtype, f.shape);
  specs[kAbsmax].expect(f.absmax_dtype, {1, {1}}, !f.normalized);
  expect_codebook(f.codebook, f.entries, specs[kCodebook]);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"codebook_dequantize", kFields, kOperands, resolve, specify,
                            rows::apart,           kTables};

}  // namespace planq::codebook_dequantize
