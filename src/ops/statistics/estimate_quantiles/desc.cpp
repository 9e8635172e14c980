#include "ops/statistics/estimate_quantiles/desc.h"

#include <cmath>
#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::estimate_quantiles {

namespace {

Fault check_tail(std::int64_t quantiles, double& tail) {
  if (std::isnan(tail)) tail = 1.0 / (2.0 * static_cast<double>(quantiles));
  tail += 0.0;  // -0 and +0 make equal descriptors
  if (tail >= 0 && tail < 0.5) return {};
  return {"tail", "expected a value of at least 0 and below 0.5, got " + checks::number(tail)};
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kFloats); !fault.ok())
    return fault;
  if (f.quantiles < 2 || f.quantiles > kMaxQuantiles)
    return {"quantiles", "expected 2 to " + std::to_string(kMaxQuantiles) + ", got " +
                             std::to_string(f.quantiles)};
  return check_tail(f.quantiles, f.tail);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"estimate_quantiles", kFields, kOperands, resolve,
                            rows::together,       kTables};

}  // namespace planq::estimate_quantiles
