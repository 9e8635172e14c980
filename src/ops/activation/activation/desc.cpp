#include "ops/activation/activation/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::activation {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (f.output_dtype == DType::Unset) f.output_dtype = f.input_dtype;
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, elementwise::kTypes); !fault.ok())
    return fault;
  if (Fault fault = affine::check_output_dtype(f.output_dtype); !fault.ok()) return fault;
  if (!f.gated && f.layout != GateLayout::Halves)
    return {"layout", "expected halves without gated, got " + std::string(name_of(f.layout))};
  return affine::resolve(descriptor, f.shape, f.input_dtype, f.output_dtype, f.quantized);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"activation", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::activation
