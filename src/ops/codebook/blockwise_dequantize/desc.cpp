#include "ops/codebook/blockwise_dequantize/desc.h"

#include "core/rows.h"
#include "ops/codebook/checks.h"

namespace planq::blockwise_dequantize {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::codebook_values(f); !fault.ok()) return fault;
  if (Fault fault = checks::block_size("block_size", f.block_size); !fault.ok()) return fault;
  return checks::nested_block_size(f.nested_block_size);
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  specs[kInput].expect(f.input_dtype, codes_shape(f.shape, f.input_dtype));
  specs[kOutput].expect(f.output_dtype, f.shape);
  expect_statistics(counts_of(f), f.absmax_dtype, f.nested_block_size, specs[kAbsmax],
                    specs[kNestedAbsmax], specs[kNestedOffset]);
  expect_codebook(f.codebook, f.entries, specs[kCodebook]);
  specs[kNestedCodebook].expect(DType::Float32, {1, {kNestedEntries}}, f.nested_block_size > 0);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "blockwise_dequantize", kFields, kOperands, resolve, specify, rows::apart, kTables};

}  // namespace planq::blockwise_dequantize
