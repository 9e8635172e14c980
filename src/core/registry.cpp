#include "core/registry.h"

#include <algorithm>
#include <array>
#include <string>

#include "build_info.h"

// operators.inc is generated: PLANQ_OPERATOR(name) for every folder of operators.
#define PLANQ_OPERATOR(name)       \
  namespace planq::name {          \
  extern const Operator kOperator; \
  }
#include "operators.inc"
#undef PLANQ_OPERATOR

namespace planq {
namespace {

// Whether the operand has at most kMostBytes. Extents of 0 hide nothing: the strides of the other
// axes are products too.
bool fits_memory(const OperandSpec& spec) {
  std::int64_t left = kMostBytes / storage_bytes(spec.dtype);
  for (int axis = 0; axis < spec.shape.rank; ++axis)
    left /= std::max<std::int64_t>(spec.shape[axis], 1);
  return left > 0;
}

}  // namespace

Fault resolve(Descriptor& descriptor) {
  const Operator& op = *descriptor.op;
  if (Fault fault = op.resolve(descriptor); !fault.ok()) return fault;
  std::array<OperandSpec, kMaxOperands> specs;
  op.specify(descriptor, std::span(specs).first(op.operands.size()));
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (specs[i].present && !fits_memory(specs[i]))
      return {"shape", std::string(op.operands[i]) + " would take more than 2^63 - 1 bytes"};
  return {};
}

std::span<const Operator* const> operators() {
#define PLANQ_OPERATOR(name) &name::kOperator,
  static constexpr const Operator* kAll[] = {
#include "operators.inc"
  };
#undef PLANQ_OPERATOR
  return kAll;
}

const Operator* find_operator(std::string_view name) {
  for (const Operator* op : operators())
    if (op->name == name) return op;
  return nullptr;
}

const BuildInfo& build_info() {
  static constexpr BuildInfo info{PLANQ_VERSION, PLANQ_BUILD_ID, PLANQ_CUDA_VERSION,
                                  PLANQ_ARCHITECTURES, PLANQ_COMPILER};
  return info;
}

}  // namespace planq
