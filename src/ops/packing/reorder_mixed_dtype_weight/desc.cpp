#include "ops/packing/reorder_mixed_dtype_weight/desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::reorder_mixed_dtype_weight {

namespace {

constexpr DType kWeights[] = {DType::Int8, DType::Int4};

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (f.shape.rank != 2)
    return {"shape", "expected (K, N), got " + std::to_string(f.shape.rank) + " axes"};
  if (Fault fault = checks::shape("shape", f.shape, 2); !fault.ok()) return fault;
  for (int axis = 0; axis < 2; ++axis)
    if (f.shape[axis] % kChunk != 0)
      return {"shape", "expected multiples of 64, axis " + std::to_string(axis) + " is " +
                           std::to_string(f.shape[axis])};
  return checks::dtype("input_dtype", f.input_dtype, kWeights);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "reorder_mixed_dtype_weight", kFields, kOperands, resolve, rows::together, kTables};

}  // namespace planq::reorder_mixed_dtype_weight
