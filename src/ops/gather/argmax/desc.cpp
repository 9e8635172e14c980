#include "ops/gather/argmax/desc.h"

#include <limits>
#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::argmax {

namespace {

constexpr DType kInputs[] = {DType::Float16, DType::BFloat16, DType::Float32};
constexpr DType kOutputs[] = {DType::Int32, DType::Int64};
// What int32 numbers.
constexpr std::int64_t kMostElements = std::numeric_limits<std::int32_t>::max();

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (f.shape.last() < 1 || f.shape.last() > kMostElements)
    return {"shape", "expected rows of 1 to " + std::to_string(kMostElements) + " elements, got " +
                         std::to_string(f.shape.last())};
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kInputs); !fault.ok()) return fault;
  return checks::dtype("output_dtype", f.output_dtype, kOutputs);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"argmax", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::argmax
