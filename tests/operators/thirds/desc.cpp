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

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"thirds", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::thirds
