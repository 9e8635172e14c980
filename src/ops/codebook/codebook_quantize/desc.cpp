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

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  specs[kInput].expect(f.input_dtype, f.shape);
  specs[kOutput].expect(f.output_dtype, codes_shape(f.shape, f.output_dtype));
  specs[kAbsmax].expect(compute_dtype(f.input_dtype), {1, {1}}, !f.normalized);
  if (f.absmax_given) specs[kAbsmax].role = Role::Input;
  expect_codebook(f.codebook, f.entries, specs[kCodebook]);
  expect_seed(f.rounding, specs[kSeed], specs[kOffset]);
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (!f.normalized && !f.absmax_given) return rows::share("absmax is of the whole tensor");
  return rows::any_of(rows::of_draws(f.shape, f.rounding), rows::of_bytes(f.shape, f.output_dtype));
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "codebook_quantize", kFields, kOperands, resolve, specify, rows_of, kTables};

}  // namespace planq::codebook_quantize
