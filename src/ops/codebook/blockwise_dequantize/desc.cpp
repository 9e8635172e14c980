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

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "blockwise_dequantize", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::blockwise_dequantize
