#include "core/registry.h"

#include "build_info.h"

// operators.inc is generated: PLANQ_OPERATOR(name) for every folder of operators.
#define PLANQ_OPERATOR(name)       \
  namespace planq::name {          \
  extern const Operator kOperator; \
  }
#include "operators.inc"
#undef PLANQ_OPERATOR

namespace planq {

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
