#include "desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::tally {
namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (f.shape.rank != 2) return {"shape", "expected two axes"};
  return checks::shape("shape", f.shape, 2);
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  for (const int tensor : {kRows, kCopy}) specs[tensor].expect(DType::Float32, f.shape);
  for (const int flag : {kNegative, kFound}) specs[flag].expect(DType::Bool);
  for (const int integer : {kCount, kSize}) specs[integer].expect(DType::Int64);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"tally", kFields, kOperands, resolve, specify, rows::apart, kTables};

}  // namespace planq::tally
