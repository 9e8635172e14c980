#include "ops/affine/quantized_output.h"

#include <cmath>
#include <cstring>
#include <string>

#include "core/checks.h"
#include "core/scratch.h"
#include "ops/affine/dynamic_range_quantize/desc.h"
#include "ops/affine/quantize/desc.h"

namespace planq::affine {
namespace {

constexpr DType kNormTypes[] = {DType::Float16, DType::BFloat16, DType::Float32};
constexpr DType kOutputTypes[] = {
    DType::Float16, DType::BFloat16, DType::Float32,      DType::Int8,       DType::UInt8,
    DType::Int4,    DType::UInt4,    DType::Float8E4M3FN, DType::Float8E5M2, DType::Float4E2M1FN};

// Whether a field of the operator is one of these.
bool is_of_codes(const Field& field) {
  constexpr auto kFields = quantized_fields(0);
  for (const Field& each : kFields)
    if (each.name == field.name) return true;
  return false;
}

Fault resolve_floating(const Descriptor& descriptor, DType output_dtype) {
  for (const Field& field : descriptor.op->fields) {
    const std::byte* const held = descriptor.storage.data() + field.offset;
    if (is_of_codes(field) && std::memcmp(held, field.initial, field.size) != 0)
      return {std::string(field.name), "goes with an output_dtype of codes, got output_dtype " +
                                           std::string(name_of(output_dtype))};
  }
  return {};
}

// Rows are quantized alone, so that all kernels are batch-invariant.
Fault check_scope(const Shape& shape, const QuantizedOutput& output) {
  const Scope& scope = output.scope;
  if (output.scale_given || scope.kind == ScopeKind::Token) return {};
  const bool last = scope.axis == -1 || scope.axis == shape.rank - 1;
  if (scope.kind == ScopeKind::Group && last) return {};
  return {"scope", "expected tokens or groups along the last axis where scales are measured, got " +
                       std::string(name_of(scope.kind))};
}

Fault check_convention(const QuantizedOutput& output) {
  if (output.convention == Convention::Planq) return {};
  if (output.scale_given)
    return {"convention", "expected planq where scales are given, got " +
                              std::string(name_of(output.convention))};
  if (output.convention != Convention::Ggml) return {};
  return {"convention",
          "expected planq, compressed_tensors, mx, mx_round_up, nvfp4 or vllm, got ggml"};
}

template <class Part>
void take_resolved(const Part& part, QuantizedOutput& output) {
  output.scope = part.scope;
  output.q_min = part.q_min;
  output.q_max = part.q_max;
  output.scale_dtype = part.scale_dtype;
  output.quotient = part.quotient;
}

// What quantizes the floating results.
Descriptor quantization(const Descriptor& whole, DType output_dtype, const QuantizedOutput& output,
                        Fault& fault) {
  PartMaker part(whole, output.scale_given ? "quantize" : "dynamic_range_quantize");
  part.copy("shape").set("input_dtype", output.norm_dtype).set("output_dtype", output_dtype);
  for (const char* const field :
       {"scope", "mode", "q_min", "q_max", "scale_dtype", "quotient", "nonfinite", "nibble_order"})
    part.copy(field);
  if (!output.scale_given) part.copy("include_zero").copy("convention").copy("scale_ub");
  return part.make(fault);
}

// The operator itself, with the floating results.
Descriptor floating(const Descriptor& whole, const QuantizedOutput& output) {
  PartMaker part(whole, whole.op->name);
  for (const Field& field : whole.op->fields)
    if (!is_of_codes(field) && field.name != "output_dtype") part.copy(field.name);
  Fault none;
  return part.set("output_dtype", output.norm_dtype).make(none);
}

// The floating results where they are no output.
OperandView take_floating(const Shape& shape, const QuantizedOutput& output, Scratch& scratch) {
  return output.also_output ? OperandView{} : take_tensor(scratch, shape, output.norm_dtype);
}

}  // namespace

Fault check_output_dtype(DType output_dtype) {
  return checks::dtype("output_dtype", output_dtype, kOutputTypes);
}

Fault resolve(const Descriptor& descriptor, const Shape& shape, DType input_dtype,
              DType output_dtype, QuantizedOutput& output) {
  if (!is_code(output_dtype)) return resolve_floating(descriptor, output_dtype);
  if (output.norm_dtype == DType::Unset) output.norm_dtype = input_dtype;
  if (Fault fault = checks::dtype("norm_dtype", output.norm_dtype, kNormTypes); !fault.ok())
    return fault;
  if (Fault fault = check_scope(shape, output); !fault.ok()) return fault;
  if (Fault fault = check_convention(output); !fault.ok()) return fault;
  const char* const measured = !output.include_zero           ? "include_zero"
                               : !std::isnan(output.scale_ub) ? "scale_ub"
                                                              : nullptr;
  if (output.scale_given && measured) return {measured, "goes with scales that are measured"};
  Fault fault;
  const Descriptor part = quantization(descriptor, output_dtype, output, fault);
  if (!fault.ok()) return fault;
  if (output.scale_given)
    take_resolved(part.as<quantize::Fields>(), output);
  else
    take_resolved(part.as<dynamic_range_quantize::Fields>(), output);
  return {};
}

std::array<Descriptor, 2> parts_of(const Descriptor& descriptor, DType output_dtype,
                                   const QuantizedOutput& output) {
  Fault none;
  return {floating(descriptor, output), quantization(descriptor, output_dtype, output, none)};
}

Status prepare_parts(const Descriptor& descriptor, const Device& device, DType output_dtype,
                     const QuantizedOutput& output, State& state) {
  return state.own<Parts>().prepare(descriptor, parts_of(descriptor, output_dtype, output), device);
}

std::size_t parts_workspace(const Shape& shape, const QuantizedOutput& output,
                            std::size_t of_kernels) {
  Scratch scratch;
  take_floating(shape, output, scratch);
  scratch.take<std::byte>(of_kernels);
  return scratch.bytes();
}

Status bind_parts(const Call& call, const Shape& shape, const QuantizedOutput& output,
                  Bound& bound) {
  Scratch scratch(call.workspace);
  OperandView floating = take_floating(shape, output, scratch);
  const std::size_t used = scratch.bytes();
  const Workspace rest{scratch.take<std::byte>(0), call.workspace.bytes - used};
  const Parts& parts = call.state.owned<Parts>();
  PartOperands first(parts.op(0)), second(parts.op(1));
  const std::span<const OperandInfo> table = call.descriptor.op->operands;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].name == "floating_output" && output.also_output) floating = call.operands[i];
    first.set(table[i].name, call.operands[i]);
    second.set(table[i].name, call.operands[i]);
  }
  first.set("output", floating);
  second.set("input", floating);
  if (const Status status = parts.bind(0, call.descriptor, first.all(), rest, bound); !status.ok())
    return status;
  return parts.bind(1, call.descriptor, second.all(), rest, bound);
}

}  // namespace planq::affine
