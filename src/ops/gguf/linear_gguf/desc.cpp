#include "ops/gguf/linear_gguf/desc.h"

#include <string>

#include "core/rows.h"
#include "ops/gguf/checks.h"
#include "ops/linear/checks.h"

namespace planq::linear_gguf {

namespace {

constexpr DType kInputs[] = {DType::Float16, DType::BFloat16, DType::Float32, DType::Int8};

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kInputs); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kSumOutputs); !fault.ok())
    return fault;
  if (Fault fault = checks::addends(f.bias_dtype, f.residual_dtype); !fault.ok()) return fault;
  if (f.type == GgufType::Q8_1 || f.type == GgufType::Q8_K)
    return {"type", "expected a type that weights have in files; " + std::string(name_of(f.type)) +
                        " is for activations, inside of GGML"};
  if (Fault fault = checks::layer_weight(f.weight_shape); !fault.ok()) return fault;
  if (Fault fault = checks::gemm_shapes(f.input(), f.weight()); !fault.ok()) return fault;
  return checks::whole_blocks("weight_shape", f.weight_shape, f.type);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"linear_gguf", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::linear_gguf
