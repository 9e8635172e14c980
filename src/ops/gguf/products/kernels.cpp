#include "ops/gguf/products/kernels.h"

#include <array>
#include <utility>

#include "ops/gguf/products/order.h"

namespace planq::gguf {

namespace {

Descriptor quantization(const Descriptor& whole, const linear::OperandField& input, Fault& fault) {
  const Scope groups = {ScopeKind::Group, input.shape.rank - 1, kGroup};
  return PartMaker(whole, "dynamic_range_quantize")
      .set_shape("shape", "input_shape")
      .set("input_dtype", input.dtype)
      .set("output_dtype", DType::Int8)
      .set("scope", groups)
      .set("mode", Mode::Symmetric)
      .set("scale_dtype", DType::Float32)
      .set("quotient", Quotient::Ratio)
      .set("nonfinite", NonFinite::Propagate)
      .make(fault);
}

// The whole, but for the type of its input.
Descriptor product(const Descriptor& whole, Fault& fault) {
  PartMaker part(whole, whole.op->name);
  for (const Field& field : whole.op->fields) part.copy(field.name);
  return part.set("input_dtype", DType::Int8).make(fault);
}

std::array<Descriptor, 2> parts_of(const Descriptor& whole, const linear::OperandField& input) {
  Fault none;
  Descriptor first = quantization(whole, input, none);
  return {std::move(first), product(whole, none)};
}

// Tensors in the workspace that one part writes and the other reads.
struct Pieces {
  OperandView codes, scale;
  std::byte* rest = nullptr;  // the workspace of the parts' kernels
  std::size_t bytes = 0;      // in front of it
};

Pieces book(const Shape& input, Scratch& scratch) {
  Shape scales = input;
  scales[scales.rank - 1] /= kGroup;
  Pieces pieces;
  pieces.codes = take_tensor(scratch, input, DType::Int8);
  pieces.scale = take_tensor(scratch, scales, DType::Float32);
  pieces.bytes = scratch.bytes();
  pieces.rest = scratch.take<std::byte>(0);
  return pieces;
}

PartOperands quantization_operands(const Operator& op, const Call& call, const Pieces& pieces) {
  PartOperands part(op);
  for (std::size_t i = 0; i < call.operands.size(); ++i)
    if (call.descriptor.op->operands[i].name == "input") part.set("input", call.operands[i]);
  part.set("output", pieces.codes);
  part.set("scale", pieces.scale);
  return part;
}

PartOperands product_operands(const Operator& op, const Call& call, const Pieces& pieces) {
  PartOperands part(op);
  for (std::size_t i = 0; i < call.operands.size(); ++i)
    part.set(op.operands[i].name, call.operands[i]);
  part.set("input", pieces.codes);
  part.set("input_scale", pieces.scale);
  return part;
}

}  // namespace

Reason rejects_of_parts(const Descriptor& descriptor, const linear::OperandField& input,
                        const Device& device) {
  if (input.dtype == DType::Int8)
    return Reason::refuse(ReasonKind::DType, "computes floating input, not int8");
  return rejects_parts(parts_of(descriptor, input), device);
}

std::size_t workspace_of_parts(const Descriptor& descriptor, const linear::OperandField& input,
                               const Device& device) {
  Scratch scratch;
  book(input.shape, scratch);
  scratch.take<std::byte>(parts_workspace(parts_of(descriptor, input), device));
  return scratch.bytes();
}

std::size_t prepared_workspace_of_parts(const Descriptor& descriptor,
                                        const linear::OperandField& input, const State& state) {
  Scratch scratch;
  book(input.shape, scratch);
  scratch.take<std::byte>(state.owned<Parts>().workspace(descriptor));
  return scratch.bytes();
}

Status prepare_parts(const Descriptor& descriptor, const linear::OperandField& input,
                     const Device& device, State& state) {
  return state.own<Parts>().prepare(descriptor, parts_of(descriptor, input), device);
}

Status bind_parts(const Call& call, const linear::OperandField& input, Bound& bound) {
  Scratch scratch(call.workspace);
  const Pieces pieces = book(input.shape, scratch);
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

}  // namespace planq::gguf
