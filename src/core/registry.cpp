#include "core/registry.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "build_info.h"

// Generated: the operators whose folders are there, and the tables of kernels in them.
#include "operators.inc"

namespace planq {
namespace {

// Whether memory of this shape has at most kMostBytes. Extents of 0 hide nothing: the strides of
// the other axes are products too.
bool fits_memory(const Shape& shape, DType dtype) {
  std::int64_t left = kMostBytes / storage_bytes(dtype);
  for (int axis = 0; axis < shape.rank; ++axis) left /= std::max<std::int64_t>(shape[axis], 1);
  return left > 0;
}
bool fits_memory(const OperandSpec& spec) {
  if (spec.kind != OperandKind::List) return fits_memory(spec.shape, spec.dtype);
  for (std::int64_t i = 0; i < spec.shapes.count; ++i)
    if (!fits_memory(spec.member_shape(i), spec.dtype)) return false;
  return true;
}

OperandSpec spec_of(const OperandInfo& operand, const Descriptor& descriptor) {
  const auto number = [&](std::uint8_t first) {
    return number_of(operand.rule(first), descriptor);
  };
  OperandSpec spec;
  spec.role = static_cast<Role>(number(operand.role));
  spec.kind = operand.kind;
  spec.optional = number(operand.optional) != 0;
  spec.same_as = operand.same_as;
  spec.present = number(operand.present) != 0;
  if (!spec.present) return spec;
  spec.dtype = static_cast<DType>(number(operand.dtype));
  if (operand.kind != OperandKind::List) {
    spec.shape = shape_of(operand.rule(operand.shape), descriptor, spec.dims);
    return spec;
  }
  spec.shapes = list_of(operand.rule(operand.shape), descriptor);
  spec.member_block = number(operand.block);
  return spec;
}

// --- Dims ---------------------------------------------------------------------------------------

// Extents that an operator may have no meaning for although it has one for the largest.
std::array<std::int64_t, 3> smaller_extents(std::int64_t max) { return {max - 1, 1, 0}; }

// What the operator says of a descriptor with another extent in the place of a dim.
Fault resolve_at(const Descriptor& descriptor, std::size_t dim, std::int64_t extent) {
  Descriptor other = descriptor;
  for (const DimUse& use : descriptor.extras->uses)
    if (use.dim == dim) std::memcpy(other.storage.data() + use.offset, &extent, sizeof extent);
  return other.op->resolve(other);
}

std::string dim_text(const DimInfo& dim) {
  return "Dim('" + std::string(dim.name.data()) + "', max=" + std::to_string(dim.max) + ")";
}

// The field that has a dim.
std::string field_of(const Descriptor& descriptor, std::size_t dim) {
  const auto& uses = descriptor.extras->uses;
  const auto use =
      std::find_if(uses.begin(), uses.end(), [&](const DimUse& use) { return use.dim == dim; });
  for (const Field& field : descriptor.op->fields)
    if (use->offset >= field.offset && use->offset < field.offset + field.size)
      return std::string(field.name);
  return "shape";
}

// Whether an operand has an axis with this mark, or that is this dim.
bool has_mark(const OperandSpec& spec, std::int8_t mark) {
  return std::find(spec.dims.begin(), spec.dims.end(), mark) != spec.dims.end();
}

// Whether the operator has a meaning for every extent of every dim, and each operand an axis for
// it or nothing to do with it; one that no operand has could be told by no call.
Fault check_dims(const Descriptor& descriptor, std::span<const OperandSpec> specs) {
  for (std::size_t dim = 0; dim < descriptor.extras->dims.size(); ++dim) {
    const DimInfo& info = descriptor.extras->dims[dim];
    const auto mark = static_cast<std::int8_t>(dim);
    for (const std::int64_t extent : smaller_extents(info.max))
      if (const Fault fault = resolve_at(descriptor, dim, extent); !fault.ok())
        return {fault.field, dim_text(info) + " would be " + std::to_string(extent) +
                                 " at times: " + fault.text};
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (has_mark(specs[i], cut_from(mark)))
        return {field_of(descriptor, dim),
                dim_text(info) + " is no axis of " + std::string(descriptor.op->operands[i].name) +
                    ", which flattens, cuts or packs it; give its extent"};
    if (std::none_of(specs.begin(), specs.end(),
                     [&](const OperandSpec& spec) { return has_mark(spec, mark); }))
      return {field_of(descriptor, dim),
              dim_text(info) +
                  " is an axis of no operand, so that no call could tell it; give its extent"};
  }
  return {};
}

// The first field that sizes follow from.
std::string shape_field(const Operator& op) {
  const auto found = std::find_if(op.fields.begin(), op.fields.end(), [](const Field& field) {
    return field.kind == FieldKind::Shape || field.kind == FieldKind::ShapeList;
  });
  return std::string(found == op.fields.end() ? "shape" : found->name);
}

}  // namespace

Fault resolve(Descriptor& descriptor) {
  const Operator& op = *descriptor.op;
  if (Fault fault = op.resolve(descriptor); !fault.ok()) return fault;
  std::vector<OperandSpec> specs(op.operands.size());
  specify(descriptor, specs);
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (specs[i].present && !fits_memory(specs[i]))
      return {shape_field(op),
              std::string(op.operands[i].name) + " would take more than 2^63 - 1 bytes"};
  return descriptor.count_dims() > 0 ? check_dims(descriptor, specs) : Fault{};
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  for (std::size_t i = 0; i < specs.size(); ++i)
    specs[i] = spec_of(descriptor.op->operands[i], descriptor);
}

std::span<const Operator* const> operators() { return kOperators; }

const Operator* find_operator(std::string_view name) {
  for (const Operator* op : operators())
    if (op->name == name) return op;
  return nullptr;
}

const BuildInfo& build_info() {
  static constexpr BuildInfo info{PLANQ_VERSION,       PLANQ_BUILD_ID,  PLANQ_SOURCE_ID,
                                  PLANQ_COMPILER,      PLANQ_FLAGS,     PLANQ_CUDA_VERSION,
                                  PLANQ_ARCHITECTURES, PLANQ_CUDA_FLAGS};
  return info;
}

Guarantee guarantee_of(const Kernel& kernel, const Descriptor& descriptor) {
  const Operator& op = *descriptor.op;
  Guarantee guarantee = kernel.guarantee;
  if (guarantee.batch_invariant && !op.rows(descriptor).accepted())
    guarantee.batch_invariant.value = false;
  if (op.promise) op.promise(descriptor, guarantee);
  return guarantee;
}

}  // namespace planq
