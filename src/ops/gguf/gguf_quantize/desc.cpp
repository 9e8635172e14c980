#include "ops/gguf/gguf_quantize/desc.h"

#include <string>

#include "core/rows.h"
#include "ops/gguf/checks.h"

namespace planq::gguf_quantize {

namespace {

constexpr DType kInputs[] = {DType::Float16, DType::BFloat16, DType::Float32};

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (gguf::has_grid(f.type))
    return {"type", "expected a type whose blocks are made of their elements alone; " +
                        std::string(name_of(f.type)) + " needs an importance matrix"};
  if (Fault fault = checks::shape_of_blocks(f.shape, f.type); !fault.ok()) return fault;
  return checks::dtype("input_dtype", f.input_dtype, kInputs);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"gguf_quantize", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::gguf_quantize
