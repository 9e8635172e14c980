#include "desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::thirds {
namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (f.shape.rank != 2) return {"shape", "expected two axes"};
  return checks::shape("shape", f.shape, 2);
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  specs[0].expect(DType::Float32, f.shape);
  specs[1].expect(DType::Float32, f.shape);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"thirds", kFields, kOperands, resolve, specify, rows::apart, kTables};

}  // namespace planq::thirds
