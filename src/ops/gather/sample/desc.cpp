#include "ops/gather/sample/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"
#include "ops/gather/sample/weight.h"

namespace planq::sample {

namespace {

constexpr DType kInputs[] = {DType::Float16, DType::BFloat16, DType::Float32};
constexpr DType kOutputs[] = {DType::Int32, DType::Int64};

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
const Operator kOperator = {"sample", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::sample
