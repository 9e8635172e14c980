#include "ops/packing/pack_weight_4bit/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::pack_weight_4bit {

namespace {

constexpr DType kCodes[] = {DType::UInt4, DType::Int4};

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::dtype("code_dtype", f.code_dtype, kCodes); !fault.ok()) return fault;
  if (f.weight_shape.rank != 2)
    return {"weight_shape",
            "expected (n, k), got " + std::to_string(f.weight_shape.rank) + " axes"};
  if (Fault fault = checks::shape("weight_shape", f.weight_shape, 2); !fault.ok()) return fault;
  return checks::shape("weight_shape", FragmentOrder::tiles(f.weight_shape), 3);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"pack_weight_4bit", kFields, kOperands, resolve,
                            rows::together,     kTables};

}  // namespace planq::pack_weight_4bit
