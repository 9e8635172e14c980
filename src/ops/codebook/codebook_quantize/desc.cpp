#include "ops/codebook/codebook_quantize/desc.h"

#include "core/rows.h"
#include "ops/codebook/checks.h"

namespace planq::codebook_quantize {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::codebook_codes(f); !fault.ok()) return fault;
  if (f.normalized && f.absmax_given) return {"absmax_given", "normalized elements have no absmax"};
  return {};
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (!f.normalized && !f.absmax_given) return rows::share("absmax is of the whole tensor");
  return rows::any_of(rows::of_draws(f.shape, f.rounding), rows::of_bytes(f.shape, f.output_dtype));
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"codebook_quantize", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::codebook_quantize
