#include "desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::every_kind {
namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::shape("other", f.other, 0); !fault.ok()) return fault;
  for (const Shape& shape : f.shapes)
    if (Fault fault = checks::shape("shapes", shape, 1); !fault.ok()) return fault;
  return {};
}

// Input has rank 2: so many elements and shapes that the descriptor holds, for the tests to see.
void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  std::int64_t elements = 0;
  for (const Shape& shape : f.shapes) elements += shape.elements();
  specs[0].expect(f.input_dtype, {2, {elements, f.shapes.count}});
  specs[1].expect(DType::UInt8, f.shape);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"every_kind", kFields,     kOperands, resolve,
                            specify,      rows::apart, kTables};

}  // namespace planq::every_kind
