#include "ops/attention/merge_attention_states/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::merge_attention_states {

namespace {

constexpr DType kTypes[] = {DType::Float16, DType::BFloat16, DType::Float32};

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 3); !fault.ok()) return fault;
  if (f.shape.rank != 3)
    return {"shape",
            "expected (tokens, heads, columns), got " + std::to_string(f.shape.rank) + " axes"};
  return checks::dtype("dtype", f.dtype, kTypes);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "merge_attention_states", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::merge_attention_states
