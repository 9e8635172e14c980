#include "ops/linear/linear_4bit/desc.h"

#include "core/rows.h"

namespace planq::linear_4bit {

namespace {

constexpr DType kCodes[] = {DType::UInt4, DType::Int4, DType::Float4E2M1FN};

Fault resolve_groups(Fields& f) {
  if (f.weight_scope.kind == ScopeKind::Tensor)
    return {"block_size", "expected the size of blocks, or groups as weight_scope"};
  if (Fault fault = linear::no_blocks(f); !fault.ok()) return fault;
  return linear::coded_groups(f);
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = linear::coded_dtypes(f, kCodes); !fault.ok()) return fault;
  if (Fault fault = linear::coded_shapes(f); !fault.ok()) return fault;
  if (Fault fault = linear::coded_layout(f, NibbleOrder::HighFirst); !fault.ok()) return fault;
  if (Fault fault = f.has_blocks() ? linear::coded_blocks(f, ScopeKind::Tensor) : resolve_groups(f);
      !fault.ok())
    return fault;
  if (Fault fault = linear::coded_parameters(f); !fault.ok()) return fault;
  return linear::coded_accumulation(f);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"linear_4bit", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::linear_4bit
