// Operators that are made of others: a kernel whose parts are whole operators, with plans of their
// own, one after another in one workspace. So the bits of the whole are those of its parts, and a
// new kernel of a part serves the whole.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/descriptor.h"
#include "core/plan.h"
#include "core/registry.h"
#include "core/scratch.h"

namespace planq {

// Makes the descriptor of a part from that of the whole. A field that is not set has its default.
// Names that the operator does not have, and types that its fields do not have, are faults of the
// whole operator's code, and throw.
class PartMaker {
 public:
  PartMaker(const Descriptor& whole, std::string_view op);

  // An integer may be a count, of which 0 is none.
  template <class T>
  PartMaker& set(std::string_view field, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    write(field, field_kind<T>(), &value, sizeof(T));
    return *this;
  }
  // A shape of the whole, with the dims that it has there.
  PartMaker& set_shape(std::string_view field, std::string_view of_whole);
  // What the whole has under the same name, with its dims; no text.
  PartMaker& copy(std::string_view field);

  // The first fault of the part's own rules goes to `fault`; its field is the part's.
  Descriptor make(Fault& fault);

 private:
  const Field& find(const Operator& op, std::string_view field) const;
  void copy_field(const Field& from, const Field& to);
  void write(std::string_view field, FieldKind kind, const void* value, std::size_t size);
  void keep_lists(const DescriptorExtras& kept);

  const Descriptor& whole_;
  Descriptor part_;
  std::vector<DimUse> uses_;
};

// A tensor without gaps that one part writes and another reads.
OperandView take_tensor(Scratch& scratch, const Shape& shape, DType dtype);

// A part's operands, by its own names. Names that it does not have are passed over.
class PartOperands {
 public:
  explicit PartOperands(const Operator& op);

  PartOperands& set(std::string_view name, const OperandView& view);
  Operands all() const { return {views_.data(), op_.operands.size()}; }

 private:
  static constexpr std::size_t kMost = 16;  // what no operator with parts has more of

  const Operator& op_;
  std::array<OperandView, kMost> views_{};
};

// What a plan of these parts needs beside the memory that the parts hand on, for all extents.
std::size_t parts_workspace(std::span<const Descriptor> parts, const Device& device);
// Why a device has no kernel for one of them, or acceptance.
Reason rejects_parts(std::span<const Descriptor> parts, const Device& device);

// The plans of the parts, as prepare leaves them in a State.
class Parts {
 public:
  Status prepare(const Descriptor& whole, std::span<const Descriptor> parts, const Device& device);

  const Operator& op(std::size_t part) const { return *plans_[part].descriptor.op; }
  // For the extents that the whole's descriptor has in this call.
  std::size_t workspace(const Descriptor& whole) const;
  // Adds the launches of one part, which follow those of the parts before it, if these have any.
  Status bind(std::size_t part, const Descriptor& whole, Operands operands, Workspace workspace,
              Bound& bound) const;

 private:
  Extents extents_of(const Descriptor& whole) const;

  std::vector<Plan> plans_;
  std::vector<DimUse> whole_uses_;
};

}  // namespace planq
