#include "ops/linear/linear_w8a8/desc.h"

#include "core/rows.h"

namespace planq::linear_w8a8 {

namespace {

Fault resolve(Descriptor& descriptor) {
  return linear::resolve_layer(descriptor.as<Fields>(), checks::kIntegerCodes);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"linear_w8a8", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::linear_w8a8
