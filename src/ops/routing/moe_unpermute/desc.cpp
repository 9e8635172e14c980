#include "ops/routing/moe_unpermute/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::moe_unpermute {

namespace {

constexpr DType kSummed[] = {DType::Float16, DType::BFloat16, DType::Float32};

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("input_shape", f.input_shape, 3); !fault.ok()) return fault;
  if (f.input_shape.rank != 3)
    return {"input_shape",
            "expected (tokens, top_k, width), got " + std::to_string(f.input_shape.rank) + " axes"};
  if (Fault fault = routing::check_pairs("input_shape", f.tokens(), f.top_k()); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kSummed); !fault.ok()) return fault;
  return checks::dtype("output_dtype", f.output_dtype, kSummed);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
// A token's sum is of the rows that it names, wherever these are.
const Operator kOperator = {"moe_unpermute", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::moe_unpermute
