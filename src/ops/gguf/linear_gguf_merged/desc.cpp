#include "ops/gguf/linear_gguf_merged/desc.h"

#include <string>
#include <utility>

#include "core/rows.h"
#include "ops/gguf/products/checks.h"

namespace planq::linear_gguf_merged {
namespace {

std::string member(std::string_view field, std::int64_t weight) {
  return std::string(field) + "[" + std::to_string(weight) + "]: ";
}

Fault check_weight(const Fields& f, std::int64_t weight) {
  const GgufType type = f.types[weight];
  if (const std::string text = checks::weight_type(type); !text.empty())
    return {"types", member("types", weight) + text};
  if (Fault fault = checks::whole_blocks("input_shape", f.input_shape, type); !fault.ok())
    return fault;
  const Shape& shape = f.weight_shapes.data[weight];
  const std::int64_t bytes = f.input_shape.last() / gguf::elements_of(type) * gguf::bytes_of(type);
  if (shape.rank != 2 || shape[1] != bytes)
    return {"weight_shapes",
            member("weight_shapes", weight) + "expected (n, " + std::to_string(bytes) +
                "), whose rows are " + std::to_string(f.input_shape.last()) + " elements of " +
                std::string(name_of(type)) + ", got " + shape_text(shape.dims.data(), shape.rank)};
  return checks::shape("weight_shapes", shape, 2);
}

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault =
          checks::dtypes_of_product(f.input_dtype, f.output_dtype, f.bias_dtype, f.residual_dtype);
      !fault.ok())
    return fault;
  const std::int64_t count = f.weight_shapes.count;
  if (count < 1 || count > kMost)
    return {"weight_shapes",
            "expected 1 to " + std::to_string(kMost) + " weights, got " + std::to_string(count)};
  if (f.types.count != count)
    return {"types", "expected one for each of " + std::to_string(count) + " weights, got " +
                         std::to_string(f.types.count)};
  if (Fault fault = checks::shape("input_shape", f.input_shape, 2); !fault.ok()) return fault;
  Shape all = f.input_shape;
  all[all.rank - 1] = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (Fault fault = check_weight(f, i); !fault.ok()) return fault;
    all[all.rank - 1] += f.columns(i);
    if (Fault fault = checks::shape("weight_shapes", all, 2); !fault.ok())
      return {fault.field, "the product has " + fault.text};
  }
  return {};
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"linear_gguf_merged", kFields, kOperands, resolve,
                            rows::apart,          kTables};

}  // namespace planq::linear_gguf_merged
