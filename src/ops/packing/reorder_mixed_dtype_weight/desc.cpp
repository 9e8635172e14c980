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

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  Shape reordered = f.shape;
  Shape matrix = f.transpose ? Shape{2, {f.shape[1], f.shape[0]}} : f.shape;
  if (is_four_bit(f.input_dtype)) {
    reordered[1] /= 2;
    matrix[1] /= 2;
  }
  specs[f.inverse ? kOutput : kInput].expect(f.input_dtype, matrix);
  specs[f.inverse ? kInput : kOutput].expect(DType::UInt8, reordered);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "reorder_mixed_dtype_weight", kFields, kOperands, resolve, specify, rows::together, kTables};

}  // namespace planq::reorder_mixed_dtype_weight
