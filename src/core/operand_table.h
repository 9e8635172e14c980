// The operand table of an operator: for each operand a line of rules, as it is written and as it is
// kept. docs/adding-an-operator.md shows how.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>

#include "core/descriptor.h"
#include "core/rules.h"

namespace planq {

// A line of an operator's operand table. Its rules stand one after another in `nodes`, in the order
// in which they are named here.
struct OperandInfo {
  std::string_view name;
  OperandKind kind = OperandKind::Tensor;
  std::int8_t same_as = -1;  // an output that may take the place of this input, exactly
  // Where each begins. `present`: whether the descriptor has such an operand. `optional`: whether
  // the caller may leave it out. `block`: what members of a list have of its shapes.
  std::uint8_t role = 0, dtype = 0, shape = 0, present = 0, optional = 0, block = 0;
  std::array<RuleNode, kRuleNodes> nodes{};

  const RuleNode* rule(std::uint8_t first) const { return &nodes[first]; }
  bool always(std::uint8_t first) const {
    return nodes[first].op == RuleOp::Constant && nodes[first].value != 0;
  }
  // What a choice of roles ends with: its last node.
  Role usual_role() const { return static_cast<Role>(nodes[dtype - 1].value); }
};

// --- From names to fields, while the compiler reads the table ------------------------------------

namespace detail {

constexpr void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

constexpr const Field& find_field(std::span<const Field> fields, std::string_view name) {
  for (const Field& field : fields)
    if (field.name == name) return field;
  throw std::logic_error("a rule names a field that the operator does not have");
}

constexpr FieldStorage storage_of(FieldKind kind) {
  switch (kind) {
    case FieldKind::Shape:
      return FieldStorage::Shape;
    case FieldKind::ShapeList:
      return FieldStorage::ShapeList;
    case FieldKind::DType:
    case FieldKind::Enumeration:
    case FieldKind::Flag:
      return FieldStorage::Byte;
    case FieldKind::Number:
      return FieldStorage::Number;
    case FieldKind::Integer:
    case FieldKind::Count:
      return FieldStorage::Int64;
    default:
      throw std::logic_error("no rule reads a field of this kind");
  }
}

constexpr std::size_t offset_of(ScopePart part) {
  switch (part) {
    case ScopePart::Axis:
      return offsetof(Scope, axis);
    case ScopePart::Size:
      return offsetof(Scope, size);
    case ScopePart::Rows:
      return offsetof(Scope, rows);
    default:
      return offsetof(Scope, kind);
  }
}

constexpr RuleNode scope_node(RuleNode node, const Field& field, ScopePart part) {
  require(field.kind == FieldKind::Scope, "a part is that of a scope");
  node.offset = static_cast<std::uint16_t>(field.offset + offset_of(part));
  node.storage = part == ScopePart::Kind   ? FieldStorage::Byte
                 : part == ScopePart::Axis ? FieldStorage::Int32
                                           : FieldStorage::Int64;
  return node;
}

constexpr RuleNode look_up(std::span<const Field> fields, const RuleTerm& term) {
  RuleNode node = term.node;
  if (term.field.empty()) return node;
  const Field& field = find_field(fields, term.field);
  if (term.part != ScopePart::None) return scope_node(node, field, term.part);
  node.offset = field.offset;
  node.storage = storage_of(field.kind);
  if (node.op == RuleOp::IsAny)
    require(field.vocabulary.type == term.vocabulary, "the enumerators are another field's");
  if (node.op == RuleOp::IsSet && node.storage == FieldStorage::Byte)
    while (!field.vocabulary.names[static_cast<std::size_t>(node.value)].empty()) ++node.value;
  return node;
}

constexpr bool is_shape(const RuleNode* rule) {
  switch (rule->op) {
    case RuleOp::Axes:
    case RuleOp::Leading:
    case RuleOp::WithAxis:
    case RuleOp::Broadcast:
    case RuleOp::Packed:
      return true;
    case RuleOp::Field:
      return rule->storage >= FieldStorage::Shape;
    case RuleOp::When: {
      const RuleNode* then = rule + 1 + rule[1].size;
      return is_shape(then) || is_shape(then + then->size);
    }
    default:
      return false;
  }
}

// Which parts of an expression may be shapes, from its first on: a bit each.
constexpr unsigned shape_parts(RuleOp op) {
  switch (op) {
    case RuleOp::AxisOf:
    case RuleOp::Elements:
    case RuleOp::Length:
    case RuleOp::AxisSum:
    case RuleOp::Leading:
    case RuleOp::WithAxis:
    case RuleOp::Packed:
      return 1;
    case RuleOp::Broadcast:
      return 3;
    case RuleOp::When:
      return 6;
    case RuleOp::Axes:
      return ~0u;
    default:
      return 0;
  }
}

constexpr void check(const RuleNode* rule) {
  unsigned shapes = shape_parts(rule->op);
  for (const RuleNode* part = rule + 1; part != rule + rule->size; part += part->size) {
    require((shapes & 1) != 0 || !is_shape(part), "a number is expected, not a shape");
    check(part);
    shapes >>= 1;
  }
}

}  // namespace detail

// --- As it is written ----------------------------------------------------------------------------

// What the members of a list have of its shapes: all of them, an element for each block of so many
// elements, the last block shorter, or one element.
inline constexpr std::int64_t kWholeMembers = 0, kSingleMembers = -1;

// Such a line as it is written: `{"bias", Role::Input, "bias_dtype", "columns",
// is_set("bias_dtype")}` has the name, the rules of role, dtype and shape, and whether there is
// such an operand.
class OperandLine {
 public:
  constexpr OperandLine(std::string_view name, const Rule& role, const Rule& dtype,
                        const Rule& shape, const Rule& present = true)
      : name_(name), role_(role), dtype_(dtype), shape_(shape), present_(present) {}

  // The caller may leave it out: always, or where the condition holds.
  constexpr OperandLine optional(const Rule& condition = true) const {
    OperandLine line = *this;
    line.optional_ = condition;
    return line;
  }
  // It may be the very memory of this input.
  constexpr OperandLine in_place_of(std::string_view input) const {
    OperandLine line = *this;
    line.replaced_ = input;
    return line;
  }
  constexpr OperandLine of_kind(OperandKind kind) const {
    OperandLine line = *this;
    line.kind_ = kind;
    return line;
  }
  // Of a list, beside its shapes: see kWholeMembers.
  constexpr OperandLine in_blocks(const Rule& size) const {
    OperandLine line = *this;
    line.block_ = size;
    return line;
  }

  constexpr OperandInfo compiled(std::span<const Field> fields) const {
    OperandInfo info;
    info.name = name_;
    info.kind = kind_;
    int count = 0;
    const auto add = [&](const Rule& rule) {
      const int first = count;
      for (const RuleTerm& term : rule.terms())
        info.nodes[static_cast<std::size_t>(count++)] = detail::look_up(fields, term);
      detail::check(&info.nodes[static_cast<std::size_t>(first)]);
      return static_cast<std::uint8_t>(first);
    };
    info.role = add(role_);
    info.dtype = add(dtype_);
    info.shape = add(shape_);
    info.present = add(present_);
    info.optional = add(optional_);
    info.block = add(block_);
    return info;
  }
  constexpr std::string_view name() const { return name_; }
  constexpr std::string_view replaced() const { return replaced_; }

 private:
  std::string_view name_;
  OperandKind kind_ = OperandKind::Tensor;
  Rule role_, dtype_, shape_, present_, optional_ = false, block_ = kWholeMembers;
  std::string_view replaced_;
};

// Such a line where a member function follows.
constexpr OperandLine tensor(std::string_view name, const Rule& role, const Rule& dtype,
                             const Rule& shape, const Rule& present = true) {
  return {name, role, dtype, shape, present};
}
// One number: by value, or an element in memory.
constexpr OperandLine scalar(std::string_view name, const Rule& role, const Rule& dtype,
                             const Rule& present = true) {
  return OperandLine(name, role, dtype, axes(), present).of_kind(OperandKind::Scalar);
}
// A tensor for each shape of a field.
constexpr OperandLine list(std::string_view name, const Rule& role, const Rule& dtype,
                           const char* shapes, const Rule& present = true) {
  return OperandLine(name, role, dtype, shapes, present).of_kind(OperandKind::List);
}

namespace detail {

template <std::size_t kCount, class Line>
constexpr std::array<OperandInfo, kCount> compile_operands(std::span<const Field> fields,
                                                           const Line& line) {
  std::array<OperandInfo, kCount> table;
  for (std::size_t i = 0; i < kCount; ++i) {
    table[i] = line(i).compiled(fields);
    if (line(i).replaced().empty()) continue;
    std::size_t input = 0;
    while (input < kCount && line(input).name() != line(i).replaced()) ++input;
    require(input < kCount, "an output takes the place of what is no operand");
    table[i].same_as = static_cast<std::int8_t>(input);
  }
  return table;
}

}  // namespace detail

// The operand table of an operator with these fields: lines, those that operators share, or both.
template <std::size_t kCount>
constexpr auto operands(std::span<const Field> fields, const OperandLine (&lines)[kCount]) {
  return detail::compile_operands<kCount>(fields, [&](std::size_t i) -> auto& { return lines[i]; });
}
template <std::size_t kShared>
constexpr auto operands(std::span<const Field> fields,
                        const std::array<OperandLine, kShared>& shared) {
  return detail::compile_operands<kShared>(fields,
                                           [&](std::size_t i) -> auto& { return shared[i]; });
}
template <std::size_t kShared, std::size_t kOwn>
constexpr auto operands(std::span<const Field> fields,
                        const std::array<OperandLine, kShared>& shared,
                        const OperandLine (&own)[kOwn]) {
  return detail::compile_operands<kShared + kOwn>(
      fields, [&](std::size_t i) -> auto& { return i < kShared ? shared[i] : own[i - kShared]; });
}

}  // namespace planq
