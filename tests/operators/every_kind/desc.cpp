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

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"every_kind", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::every_kind
