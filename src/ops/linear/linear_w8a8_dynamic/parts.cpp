// What the kernels of both backends do: they bind the parts, one after another, to operands of the
// call and to tensors in the workspace.

#include <array>

#include "core/scope.h"
#include "ops/linear/linear_w8a8_dynamic/desc.h"

namespace planq::linear_w8a8_dynamic {

namespace {

PartOperands quantization_operands(const Operator& op, const Call& call, const Pieces& pieces) {
  PartOperands part(op);
  part.set("input", call.operands[kInput]);
  part.set("output", pieces.codes);
  part.set("scale", pieces.scale);
  part.set("zero_point", pieces.zero_point);
  return part;
}

PartOperands sum_operands(const Operator& op, const Call&, const Pieces& pieces) {
  PartOperands part(op);
  part.set("input", pieces.codes);
  part.set("output", pieces.sum);
  return part;
}

PartOperands gemm_operands(const Operator& op, const Call& call, const Pieces& pieces) {
  PartOperands part(op);
  part.set("input", pieces.codes);
  part.set("input_scale", pieces.scale);
  part.set("input_zero_point", pieces.zero_point);
  part.set("input_sum", pieces.sum);
  // The others are operands of the call, under the same names.
  for (std::size_t i = kWeight; i < std::size(kOperands); ++i)
    part.set(kOperands[i].name, call.operands[i]);
  return part;
}

using Arrange = PartOperands (*)(const Operator&, const Call&, const Pieces&);

}  // namespace

Pieces book(const Fields& f, Scratch& scratch) {
  const Shape rows = parameter_shape(f.input_shape, {ScopeKind::Token});
  const Shape scales = parameter_shape(f.input_shape, f.input_scope);
  Pieces pieces;
  pieces.codes = take_tensor(scratch, packed_shape(f.input_shape, f.code_dtype), f.code_dtype);
  pieces.scale = take_tensor(scratch, scales, f.scale_dtype);
  if (f.input_mode == Mode::Asymmetric)
    pieces.zero_point = take_tensor(scratch, scales, DType::Int32);
  if (f.weight_mode == Mode::Asymmetric) pieces.sum = take_tensor(scratch, rows, DType::Int32);
  pieces.bytes = scratch.bytes();
  pieces.rest = scratch.take<std::byte>(0);
  return pieces;
}

Reason rejects(const Descriptor& descriptor, const Device& device) {
  Fault none;
  return rejects_parts(parts_of(descriptor, none).span(), device);
}

std::size_t workspace(const Descriptor& descriptor, const Device& device) {
  Fault none;
  Scratch scratch;
  book(descriptor.as<Fields>(), scratch);
  scratch.take<std::byte>(parts_workspace(parts_of(descriptor, none).span(), device));
  return scratch.bytes();
}

std::size_t prepared_workspace(const Descriptor& descriptor, const State& state) {
  Scratch scratch;
  book(descriptor.as<Fields>(), scratch);
  scratch.take<std::byte>(state.owned<Parts>().workspace(descriptor));
  return scratch.bytes();
}

Status prepare(const Descriptor& descriptor, const Device& device, State& state) {
  Fault none;
  return state.own<Parts>().prepare(descriptor, parts_of(descriptor, none).span(), device);
}

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  Scratch scratch(call.workspace);
  const Pieces pieces = book(f, scratch);
  const Workspace rest{pieces.rest, call.workspace.bytes - pieces.bytes};
  const Parts& parts = call.state.owned<Parts>();
  constexpr Arrange kAll[] = {quantization_operands, sum_operands, gemm_operands};
  constexpr Arrange kUsual[] = {quantization_operands, gemm_operands};
  const std::span<const Arrange> arrange =
      f.weight_mode == Mode::Asymmetric ? std::span<const Arrange>(kAll) : kUsual;
  for (std::size_t part = 0; part < arrange.size(); ++part) {
    const PartOperands operands = arrange[part](parts.op(part), call, pieces);
    if (const Status status = parts.bind(part, call.descriptor, operands.all(), rest, bound);
        !status.ok())
      return status;
  }
  return Status::success();
}

}  // namespace planq::linear_w8a8_dynamic
