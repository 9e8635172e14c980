#include "desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::step14 {
namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (f.shape.rank != 2) return {"shape", "expected two axes"};
  return checks::shape("shape", f.shape, 2);
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  for (const int tensor : {kParameter, kGradient, kAverage, kSquare, kCopy})
    specs[tensor].expect(DType::Float32, f.shape);
  specs[kLargest].expect(DType::Float32, f.shape, f.amsgrad);
  for (const int real : {kRate, kBeta1, kBeta2, kEpsilon, kDecay, kGradientScale})
    specs[real].expect(DType::Float64);
  for (const int integer : {kSkip, kStep}) specs[integer].expect(DType::Int64);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"step14", kFields, kOperands, resolve, specify, rows::apart, kTables};

}  // namespace planq::step14
