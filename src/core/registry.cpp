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

// What the descriptor asks without a word of dims.
void specify_extents(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const auto& declared = descriptor.op->operands;
  for (std::size_t i = 0; i < declared.size(); ++i) {
    specs[i] = {};
    specs[i].role = declared[i].role;
    specs[i].kind = declared[i].kind;
    specs[i].optional = declared[i].presence == Presence::Optional;
  }
  descriptor.op->specify(descriptor, specs);
}

// --- Dims ---------------------------------------------------------------------------------------

// The specs of a descriptor with another extent in the place of one of its dims.
class Probe {
 public:
  explicit Probe(const Descriptor& descriptor)
      : descriptor_(descriptor), specs_(descriptor.op->operands.size()) {}

  Fault resolve(std::size_t dim, std::int64_t extent) {
    Descriptor other = with(dim, extent);
    return other.op->resolve(other);
  }
  std::span<const OperandSpec> specify(std::size_t dim, std::int64_t extent) {
    specify_extents(with(dim, extent), specs_);
    return specs_;
  }

 private:
  Descriptor with(std::size_t dim, std::int64_t extent) const {
    Descriptor other = descriptor_;
    for (const DimUse& use : descriptor_.extras->uses)
      if (use.dim == dim) std::memcpy(other.storage.data() + use.offset, &extent, sizeof extent);
    return other;
  }

  const Descriptor& descriptor_;
  std::vector<OperandSpec> specs_;
};

// Extents that tell an axis that is a dim from one that is a part or a multiple of it.
std::array<std::int64_t, 4> probes_of(std::int64_t max) { return {max, max - 1, 1, 0}; }

// Marks the axes of the specs that are this dim. The answer names the operand of which the dim is
// no axis as it is: it would be flattened, cut into groups or packed.
const OperandInfo* mark(const Descriptor& descriptor, std::size_t dim,
                        std::span<OperandSpec> specs) {
  Probe probe(descriptor);
  const std::int64_t max = descriptor.extras->dims[dim].max;
  for (const std::int64_t extent : probes_of(max)) {
    const auto smaller = probe.specify(dim, extent);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!specs[i].present) continue;
      if (smaller[i].shape.rank != specs[i].shape.rank) return &descriptor.op->operands[i];
      for (int axis = 0; axis < specs[i].shape.rank; ++axis) {
        if (smaller[i].shape[axis] == specs[i].shape[axis]) continue;
        if (smaller[i].shape[axis] != extent || specs[i].shape[axis] != max)
          return &descriptor.op->operands[i];
        specs[i].dims[static_cast<std::size_t>(axis)] = static_cast<std::int8_t>(dim);
      }
    }
  }
  // An axis that is the dim at one extent is it at all of them.
  for (const std::int64_t extent : probes_of(max)) {
    const auto smaller = probe.specify(dim, extent);
    for (std::size_t i = 0; i < specs.size(); ++i)
      for (int axis = 0; axis < specs[i].shape.rank; ++axis)
        if (specs[i].present &&
            specs[i].dims[static_cast<std::size_t>(axis)] == static_cast<std::int8_t>(dim) &&
            smaller[i].shape[axis] != extent)
          return &descriptor.op->operands[i];
  }
  return nullptr;
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

bool is_axis(std::size_t dim, std::span<const OperandSpec> specs) {
  return std::any_of(specs.begin(), specs.end(), [&](const OperandSpec& spec) {
    const auto last = spec.dims.end();
    return std::find(spec.dims.begin(), last, static_cast<std::int8_t>(dim)) != last;
  });
}

// Whether the operator has a meaning for every extent of every dim, and each operand an axis for
// it or nothing to do with it; one that no operand has could be told by no call.
Fault check_dims(const Descriptor& descriptor) {
  std::vector<OperandSpec> specs(descriptor.op->operands.size());
  specify_extents(descriptor, specs);
  Probe probe(descriptor);
  for (std::size_t dim = 0; dim < descriptor.extras->dims.size(); ++dim) {
    const DimInfo& info = descriptor.extras->dims[dim];
    for (const std::int64_t extent : probes_of(info.max))
      if (const Fault fault = probe.resolve(dim, extent); !fault.ok())
        return {fault.field, dim_text(info) + " would be " + std::to_string(extent) +
                                 " at times: " + fault.text};
    if (const OperandInfo* operand = mark(descriptor, dim, specs))
      return {field_of(descriptor, dim), dim_text(info) + " is no axis of " +
                                             std::string(operand->name) +
                                             ", which flattens, cuts or packs it; give its extent"};
    if (!is_axis(dim, specs))
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
  specify_extents(descriptor, specs);
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (specs[i].present && !fits_memory(specs[i]))
      return {shape_field(op),
              std::string(op.operands[i].name) + " would take more than 2^63 - 1 bytes"};
  return descriptor.count_dims() > 0 ? check_dims(descriptor) : Fault{};
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  specify_extents(descriptor, specs);
  for (int dim = 0; dim < descriptor.count_dims(); ++dim)
    mark(descriptor, static_cast<std::size_t>(dim), specs);
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
