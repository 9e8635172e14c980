#include "ops/outlier/llm_int8_quantize/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"
#include "core/scope.h"

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

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  Shape kept = f.shape;
  kept[kept.rank - 1] = f.capacity;
  specs[kInput].expect(f.input_dtype, f.shape);
  specs[kOutput].expect(DType::Int8, f.shape);
  specs[kScale].expect(DType::Float32, parameter_shape(f.shape, {ScopeKind::Token}));
  specs[kIndex].expect(DType::Int32, {1, {f.capacity}});
  specs[kCount].expect(DType::Int64, {1, {1}});
  specs[kOutlier].expect(f.input_dtype, kept);
}

Reason rows_of(const Descriptor&) {
  return rows::share("an outlier in one row takes its column's codes out of every row");
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "llm_int8_quantize", kFields, kOperands, resolve, specify, rows_of, kTables};

}  // namespace planq::llm_int8_quantize
