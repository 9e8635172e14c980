#include "core/parts.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace planq {
namespace {

// A fault of the whole operator's code, which its first test shows.
void require(bool holds, std::string_view what) {
  if (!holds) throw std::logic_error("a part of an operator: " + std::string(what));
}

// Parts are chosen among kernels whose bits are those of every other.
Plan unprepared(const Descriptor& part, const Device& device) {
  Plan plan;
  plan.descriptor = part;
  plan.preference.determinism = Determinism::BitExact;
  plan.device = device;
  return plan;
}

}  // namespace

// --- PartMaker ---------------------------------------------------------------------------------

PartMaker::PartMaker(const Descriptor& whole, std::string_view op) : whole_(whole) {
  part_.op = find_operator(op);
  require(part_.op, op);
  for (const Field& field : part_.op->fields)
    std::memcpy(part_.storage.data() + field.offset, field.initial, field.size);
}

const Field& PartMaker::find(const Operator& op, std::string_view field) const {
  const auto found = std::find_if(op.fields.begin(), op.fields.end(),
                                  [&](const Field& each) { return each.name == field; });
  require(found != op.fields.end(), field);
  return *found;
}

void PartMaker::write(std::string_view name, FieldKind kind, const void* value, std::size_t size) {
  const Field& field = find(*part_.op, name);
  const bool count = field.kind == FieldKind::Count && kind == FieldKind::Integer;
  require((field.kind == kind || count) && field.size == size, name);
  std::memcpy(part_.storage.data() + field.offset, value, size);
}

void PartMaker::copy_field(const Field& from, const Field& to) {
  require(from.kind == to.kind && from.size == to.size, to.name);
  std::memcpy(part_.storage.data() + to.offset, whole_.storage.data() + from.offset, to.size);
  if (!whole_.extras) return;
  for (const DimUse& use : whole_.extras->uses)
    if (use.offset >= from.offset && use.offset < from.offset + from.size)
      uses_.push_back({static_cast<std::uint16_t>(use.offset - from.offset + to.offset), use.dim});
}

PartMaker& PartMaker::set_shape(std::string_view name, std::string_view of_whole) {
  const Field& from = find(*whole_.op, of_whole);
  require(from.kind == FieldKind::Shape, name);
  copy_field(from, find(*part_.op, name));
  return *this;
}

PartMaker& PartMaker::copy(std::string_view name) {
  const Field& from = find(*whole_.op, name);
  require(from.kind != FieldKind::Text, name);
  copy_field(from, find(*part_.op, name));
  return *this;
}

// Lists that were copied stand in the whole's extras: they shall stand in the part's.
void PartMaker::keep_lists(const DescriptorExtras& kept) {
  const auto move = [&](auto& list, const auto& from, const auto& to) {
    for (std::size_t i = 0; i < from.size(); ++i)
      if (list.data == from[i].data()) list.data = to[i].data();
  };
  for (const Field& field : part_.op->fields) {
    std::byte* const place = part_.storage.data() + field.offset;
    if (field.kind == FieldKind::ShapeList)
      move(*reinterpret_cast<ShapeList*>(place), whole_.extras->lists, kept.lists);
    if (field.kind == FieldKind::IntegerList || field.kind == FieldKind::EnumerationList)
      move(*reinterpret_cast<IntegerList*>(place), whole_.extras->integers, kept.integers);
  }
}

Descriptor PartMaker::make(Fault& fault) {
  if (whole_.extras) {
    const auto kept = std::make_shared<DescriptorExtras>(*whole_.extras);
    kept->uses = uses_;
    keep_lists(*kept);
    part_.extras = kept;
  }
  // The whole's dims are checked with the whole: not every part has all of them.
  fault = part_.op->resolve(part_);
  return part_;
}

// --- Operands ----------------------------------------------------------------------------------

OperandView take_tensor(Scratch& scratch, const Shape& shape, DType dtype) {
  const auto bytes = static_cast<std::size_t>(shape.elements() * storage_bytes(dtype));
  OperandView view;
  view.data = scratch.take<std::byte>(bytes);
  view.rank = shape.rank;
  view.dtype = storage_of(dtype);
  std::int64_t stride = 1;
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    view.extents[static_cast<std::size_t>(axis)] = shape[axis];
    view.strides[static_cast<std::size_t>(axis)] = stride;
    stride *= shape[axis];
  }
  return view;
}

PartOperands::PartOperands(const Operator& op) : op_(op) {
  require(op.operands.size() <= kMost, "it has too many operands");
}

PartOperands& PartOperands::set(std::string_view name, const OperandView& view) {
  for (std::size_t i = 0; i < op_.operands.size(); ++i)
    if (op_.operands[i].name == name) views_[i] = view;
  return *this;
}

// --- Selection ---------------------------------------------------------------------------------

std::size_t parts_workspace(std::span<const Descriptor> parts, const Device& device) {
  std::size_t most = 0;
  for (const Descriptor& part : parts) {
    Plan plan = unprepared(part, device);
    if (find_kernels(plan)) most = std::max(most, plan.workspace);
  }
  return most;
}

Reason rejects_parts(std::span<const Descriptor> parts, const Device& device) {
  for (const Descriptor& part : parts)
    if (!choose(part, unprepared(part, device).preference, device).chosen)
      return Reason::refuse(ReasonKind::Feature, "no kernel of ", part.op->name,
                            " takes its part here");
  return Reason::accept();
}

// --- Parts -------------------------------------------------------------------------------------

Status Parts::prepare(const Descriptor& whole, std::span<const Descriptor> parts,
                      const Device& device) {
  if (whole.extras) whole_uses_ = whole.extras->uses;
  const Stream stream{device.backend, nullptr, device.index, 1};
  for (const Descriptor& part : parts) {
    Plan plan = unprepared(part, device);
    Status status;
    require(make_plan(stream, plan, status), "no kernel, although rejects_parts accepted");
    if (!status.ok()) return status;
    plans_.push_back(std::move(plan));
  }
  return Status::success();
}

Extents Parts::extents_of(const Descriptor& whole) const {
  Extents extents;
  for (const DimUse& use : whole_uses_)
    std::memcpy(&extents.at[use.dim], whole.storage.data() + use.offset, sizeof(std::int64_t));
  return extents;
}

std::size_t Parts::workspace(const Descriptor& whole) const {
  const Extents extents = extents_of(whole);
  std::size_t most = 0;
  Descriptor storage;
  for (const Plan& plan : plans_)
    most = std::max(most, actual_of(plan, extents, storage).workspace);
  return most;
}

Status Parts::bind(std::size_t part, const Descriptor& whole, Operands operands,
                   Workspace workspace, Bound& bound) const {
  const Plan& plan = plans_[part];
  Descriptor storage;
  const Actual actual = actual_of(plan, extents_of(whole), storage);
  if (part > 0) bound.follow();
  return bound.add_part([&](Bound& steps) {
    return actual.prepared->kernel->bind(
        {*actual.descriptor, plan.device, actual.prepared->state, operands, workspace}, steps);
  });
}

}  // namespace planq
