// What the kernels of floats do on both backends: they bind dynamic_range_quantize, and then
// linear_gguf of its codes, to operands of the call and to tensors in the workspace.

#include <utility>

#include "ops/gguf/linear_gguf/desc.h"

namespace planq::linear_gguf {

namespace {

Descriptor quantization(const Descriptor& whole, Fault& fault) {
  const Fields& f = whole.as<Fields>();
  const Scope groups = {ScopeKind::Group, f.input_shape.rank - 1, kGroup};
  return PartMaker(whole, "dynamic_range_quantize")
      .set_shape("shape", "input_shape")
      .set("input_dtype", f.input_dtype)
      .set("output_dtype", DType::Int8)
      .set("scope", groups)
      .set("mode", Mode::Symmetric)
      .set("scale_dtype", DType::Float32)
      .set("quotient", Quotient::Ratio)
      .set("nonfinite", NonFinite::Propagate)
      .make(fault);
}

Descriptor product(const Descriptor& whole, Fault& fault) {
  return PartMaker(whole, "linear_gguf")
      .set_shape("input_shape", "input_shape")
      .set_shape("weight_shape", "weight_shape")
      .copy("type")
      .set("input_dtype", DType::Int8)
      .copy("output_dtype")
      .copy("bias_dtype")
      .copy("residual_dtype")
      .make(fault);
}

// Tensors in the workspace that one part writes and the other reads.
struct Pieces {
  OperandView codes, scale;
  std::byte* rest = nullptr;  // the workspace of the parts' kernels
  std::size_t bytes = 0;      // in front of it
};

Pieces book(const Fields& f, Scratch& scratch) {
  Shape scales = f.input_shape;
  scales[scales.rank - 1] /= kGroup;
  Pieces pieces;
  pieces.codes = take_tensor(scratch, f.input_shape, DType::Int8);
  pieces.scale = take_tensor(scratch, scales, DType::Float32);
  pieces.bytes = scratch.bytes();
  pieces.rest = scratch.take<std::byte>(0);
  return pieces;
}

PartOperands quantization_operands(const Operator& op, const Call& call, const Pieces& pieces) {
  PartOperands part(op);
  part.set("input", call.operands[kInput]);
  part.set("output", pieces.codes);
  part.set("scale", pieces.scale);
  return part;
}

PartOperands product_operands(const Operator& op, const Call& call, const Pieces& pieces) {
  PartOperands part(op);
  for (std::size_t i = 0; i < std::size(kOperands); ++i)
    part.set(kOperands[i].name, call.operands[i]);
  part.set("input", pieces.codes);
  part.set("input_scale", pieces.scale);
  return part;
}

}  // namespace

std::array<Descriptor, 2> parts_of(const Descriptor& descriptor, Fault& fault) {
  Descriptor first = quantization(descriptor, fault);
  return {std::move(first), product(descriptor, fault)};
}

Reason rejects_of_parts(const Descriptor& descriptor, const Device& device) {
  if (descriptor.as<Fields>().has_codes())
    return Reason::refuse(ReasonKind::DType, "computes floating input, not int8");
  Fault none;
  return rejects_parts(parts_of(descriptor, none), device);
}

std::size_t workspace_of_parts(const Descriptor& descriptor, const Device& device) {
  Fault none;
  Scratch scratch;
  book(descriptor.as<Fields>(), scratch);
  scratch.take<std::byte>(parts_workspace(parts_of(descriptor, none), device));
  return scratch.bytes();
}

std::size_t prepared_workspace_of_parts(const Descriptor& descriptor, const State& state) {
  Scratch scratch;
  book(descriptor.as<Fields>(), scratch);
  scratch.take<std::byte>(state.owned<Parts>().workspace(descriptor));
  return scratch.bytes();
}

Status prepare_parts(const Descriptor& descriptor, const Device& device, State& state) {
  Fault none;
  return state.own<Parts>().prepare(descriptor, parts_of(descriptor, none), device);
}

Status bind_parts(const Call& call, Bound& bound) {
  Scratch scratch(call.workspace);
  const Pieces pieces = book(call.fields<Fields>(), scratch);
  const Workspace rest{pieces.rest, call.workspace.bytes - pieces.bytes};
  const Parts& parts = call.state.owned<Parts>();
  std::size_t part = 0;
  for (const auto arrange : {quantization_operands, product_operands}) {
    const PartOperands operands = arrange(parts.op(part), call, pieces);
    const Status status = parts.bind(part, call.descriptor, operands.all(), rest, bound);
    if (!status.ok()) return status;
    ++part;
  }
  return Status::success();
}

}  // namespace planq::linear_gguf
