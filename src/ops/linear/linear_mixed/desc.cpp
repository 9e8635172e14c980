#include "ops/linear/linear_mixed/desc.h"

#include "core/rows.h"

namespace planq::linear_mixed {

namespace {

constexpr DType kCodes[] = {DType::Int8, DType::UInt8, DType::Int4, DType::Float8E4M3FN,
                            DType::Float8E5M2};

// weight_scope: channel(0), or groups along the last axis.
Fault resolve_scope(Fields& f) {
  if (f.weight_scope.kind != ScopeKind::Channel) return linear::coded_groups(f);
  if (Fault fault = checks::scope(f.weight_scope, f.weight_shape); !fault.ok())
    return {"weight_scope", fault.text};
  if (f.weight_scope.axis != 0)
    return {"weight_scope", "expected channel(0) or groups along the last axis, got channel(" +
                                std::to_string(f.weight_scope.axis) + ")"};
  if (f.weight_mode == Mode::Symmetric) return {};
  return {"weight_mode", "channels have no zero point; use Mode.SYMMETRIC or groups"};
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = linear::coded_dtypes(f, kCodes); !fault.ok()) return fault;
  if (Fault fault = linear::coded_shapes(f); !fault.ok()) return fault;
  if (Fault fault = linear::coded_layout(f, NibbleOrder::LowFirst); !fault.ok()) return fault;
  if (Fault fault = resolve_scope(f); !fault.ok()) return fault;
  if (Fault fault = linear::coded_parameters(f); !fault.ok()) return fault;
  return linear::coded_accumulation(f);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"linear_mixed", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::linear_mixed
