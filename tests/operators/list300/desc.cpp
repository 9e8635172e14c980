#include "desc.h"

#include "core/checks.h"
#include "core/rows.h"

namespace planq::list300 {
namespace {

Fault resolve(Descriptor& descriptor) {
  for (const Shape& shape : descriptor.as<Fields>().shapes)
    if (Fault fault = checks::shape("shapes", shape, 0); !fault.ok()) return fault;
  return {};
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const ShapeList& shapes = descriptor.as<Fields>().shapes;
  specs[0].expect_list(DType::Float32, shapes);
  specs[1].expect_list(DType::Float32, shapes);
  specs[2].expect(DType::Float64);
  specs[3].expect(DType::Float64, {1, {shapes.count}});
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"list300", kFields, kOperands, resolve, specify, rows::apart, kTables};

}  // namespace planq::list300
