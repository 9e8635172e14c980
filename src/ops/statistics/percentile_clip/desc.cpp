#include "ops/statistics/percentile_clip/desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::percentile_clip {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (f.percentile < 0 || f.percentile >= kRemembered)
    return {"percentile", "expected 0 to 99, got " + std::to_string(f.percentile)};
  return checks::dtype("input_dtype", f.input_dtype, checks::kFloats);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"percentile_clip", kFields,        kOperands,
                            resolve,           rows::together, kTables};

}  // namespace planq::percentile_clip
