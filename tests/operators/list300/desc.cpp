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

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"list300", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::list300
