// Kernels that are plans of linear_gguf: each gets its columns of what all weights share.

#include <vector>

#include "ops/gguf/linear_gguf_merged/desc.h"

namespace planq::linear_gguf_merged {
namespace {

std::vector<Descriptor> products_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  std::vector<Descriptor> products;
  for (std::int64_t i = 0; i < f.types.count; ++i) {
    Fault none;
    products.push_back(PartMaker(descriptor, "linear_gguf")
                           .set_shape("input_shape", "input_shape")
                           .set("weight_shape", f.numbers(i))
                           .set("type", f.types[i])
                           .copy("input_dtype")
                           .copy("output_dtype")
                           .copy("bias_dtype")
                           .copy("residual_dtype")
                           .make(none));
  }
  return products;
}

}  // namespace

std::size_t workspace_of_products(const Descriptor& descriptor, const Device& device) {
  return parts_workspace(products_of(descriptor), device);
}

std::size_t prepared_workspace_of_products(const Descriptor& descriptor, const State& state) {
  return state.owned<Parts>().workspace(descriptor);
}

Status prepare_products(const Descriptor& descriptor, const Device& device, State& state) {
  return state.own<Parts>().prepare(descriptor, products_of(descriptor), device);
}

Status bind_products(const Call& call, Bound& bound) {
  const Parts& parts = call.state.owned<Parts>();
  return for_each_weight(call, [&](std::int64_t i, const Own& own) {
    const auto part = static_cast<std::size_t>(i);
    PartOperands operands(parts.op(part));
    operands.set("input", call.operands[kInput])
        .set("weight", own.weight)
        .set("output", own.output)
        .set("input_scale", call.operands[kInputScale])
        .set("bias", own.bias)
        .set("residual", own.residual);
    return parts.bind(part, call.descriptor, operands.all(), call.workspace, bound);
  });
}

}  // namespace planq::linear_gguf_merged
