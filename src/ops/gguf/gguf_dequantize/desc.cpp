#include "ops/gguf/gguf_dequantize/desc.h"

#include <string>

#include "core/rows.h"
#include "ops/gguf/checks.h"

namespace planq::gguf_dequantize {

namespace {

constexpr DType kOutputs[] = {DType::Float16, DType::BFloat16, DType::Float32};

constexpr DType kIndices[] = {DType::Int32, DType::Int64};

Fault resolve_index(Fields& f) {
  if (!f.has_index()) {
    if (f.index_dtype == DType::Unset) return {};
    return {"index_dtype",
            "only rows by index have it, got " + std::string(name_of(f.index_dtype))};
  }
  if (Fault fault = checks::shape("shape", f.shape, 2); !fault.ok()) return fault;
  const Shape table = {2, {f.table_rows, f.shape.last()}};
  if (Fault fault = checks::shape("table_rows", table, 2); !fault.ok()) return fault;
  if (f.index_dtype == DType::Unset) f.index_dtype = DType::Int64;
  return checks::dtype("index_dtype", f.index_dtype, kIndices);
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape_of_blocks(f.shape, f.type); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, kOutputs); !fault.ok())
    return fault;
  return resolve_index(f);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"gguf_dequantize", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::gguf_dequantize
