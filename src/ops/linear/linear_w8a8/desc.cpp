#include "ops/linear/linear_w8a8/desc.h"

#include "core/rows.h"

namespace planq::linear_w8a8 {

namespace {

Fault resolve(Descriptor& descriptor) {
  return linear::resolve_layer(descriptor.as<Fields>(), checks::kIntegerCodes);
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  linear::specify_layer(descriptor.as<Fields>(), specs);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"linear_w8a8", kFields,     kOperands, resolve,
                            specify,       rows::apart, kTables};

}  // namespace planq::linear_w8a8
