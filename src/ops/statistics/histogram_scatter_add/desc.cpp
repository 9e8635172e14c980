#include "ops/statistics/histogram_scatter_add/desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::histogram_scatter_add {

namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 2); !fault.ok()) return fault;
  if (f.shape.rank != 2) return {"shape", "expected two axes"};
  if (f.count < 0) return {"count", "expected 0 or more, got " + std::to_string(f.count)};
  return {};
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"histogram_scatter_add", kFields, kOperands, resolve,
                            rows::together,          kTables};

}  // namespace planq::histogram_scatter_add
