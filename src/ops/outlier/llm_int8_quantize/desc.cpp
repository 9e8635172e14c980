#include "ops/outlier/llm_int8_quantize/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::llm_int8_quantize {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, outlier::kElements); !fault.ok())
    return fault;
  if (f.shape.last() > outlier::kMostIndices)
    return {"shape", "the index of a column is an int32, got a last axis of " +
                         std::to_string(f.shape.last())};
  if (Fault fault = outlier::check_threshold(f.threshold); !fault.ok()) return fault;
  return outlier::check_capacity(f.capacity);
}

Reason rows_of(const Descriptor&) {
  return rows::share("an outlier in one row takes its column's codes out of every row");
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"llm_int8_quantize", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::llm_int8_quantize
