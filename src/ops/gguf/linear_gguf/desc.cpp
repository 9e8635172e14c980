#include "ops/gguf/linear_gguf/desc.h"

#include "core/rows.h"
#include "ops/gguf/products/checks.h"

namespace planq::linear_gguf {
namespace {

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault =
          checks::dtypes_of_product(f.input_dtype, f.output_dtype, f.bias_dtype, f.residual_dtype);
      !fault.ok())
    return fault;
  if (auto text = checks::weight_type(f.type); !text.empty()) return {"type", std::move(text)};
  if (Fault fault = checks::layer_weight(f.weight_shape); !fault.ok()) return fault;
  if (Fault fault = checks::gemm_shapes(f.input(), f.weight()); !fault.ok()) return fault;
  return checks::whole_blocks("weight_shape", f.weight_shape, f.type);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"linear_gguf", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::linear_gguf
