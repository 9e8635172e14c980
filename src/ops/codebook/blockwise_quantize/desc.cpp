#include "ops/codebook/blockwise_quantize/desc.h"

#include "core/rows.h"
#include "ops/codebook/checks.h"

namespace planq::blockwise_quantize {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::codebook_codes(f); !fault.ok()) return fault;
  if (Fault fault = checks::block_size("block_size", f.block_size); !fault.ok()) return fault;
  if (f.absmax_given && f.nested_block_size != 0)
    return {"nested_block_size", "nested statistics are of absmax that are measured, not given"};
  return checks::nested_block_size(f.nested_block_size);
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (f.nested_block_size > 0) return rows::share("nested statistics are of all blocks");
  return rows::any_of(rows::of_draws(f.shape, f.rounding), rows::of_bytes(f.shape, f.output_dtype),
                      f.absmax_given ? Reason::accept() : rows::of_pieces(f.shape, f.block_size));
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"blockwise_quantize", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::blockwise_quantize
