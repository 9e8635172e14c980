#include "ops/gguf/gguf_dequantize/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::gguf_dequantize {

namespace {

constexpr DType kOutputs[] = {DType::Float16, DType::BFloat16, DType::Float32};

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  const int elements = gguf::elements_of(f.type);
  if (f.shape.last() % elements != 0)
    return {"shape", "expected a last axis of whole blocks of " + std::to_string(elements) +
                         " elements, as " + std::string(name_of(f.type)) + " has them, got " +
                         std::to_string(f.shape.last()) + " elements"};
  return checks::dtype("output_dtype", f.output_dtype, kOutputs);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"gguf_dequantize", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::gguf_dequantize
