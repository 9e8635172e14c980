// Rules: what operands have to be, as expressions of a descriptor's fields. They are data: specs,
// Python's tables and torch's symbolic shapes read the same ones.
//
// A rule is a number or a shape. Truth values and enumerators are numbers. Where a shape is
// expected, a number is one axis: `1` is the shape (1,), and "capacity" is (capacity,). A field
// goes by its name, which the compiler looks up in the operator's field table.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/descriptor.h"
#include "core/vocabulary.h"

namespace planq {

// What an expression is, and the parts that follow it.
// clang-format off
#define PLANQ_RULE_OP_NAMES(_) \
  _(Constant, "constant")   /* of `value` */ \
  _(Field, "field")         /* a number or a shape */ \
  _(IsAny, "is_any")        /* the field is an enumerator whose bit `value` has */ \
  _(IsSet, "is_set")        /* the field is not None; `value`: as None is stored */ \
  _(Equal, "equal")         /* two numbers */ \
  _(When, "when")           /* a condition, what holds then, and otherwise */ \
  _(Sum, "sum")             /* two numbers */ \
  _(Product, "product")     /* two numbers */ \
  _(Groups, "groups")       /* two numbers: their quotient, rounded up */ \
  _(Smaller, "smaller")     /* two numbers */ \
  _(AxisOf, "axis_of")      /* a shape, and an index that may count from the end */ \
  _(Elements, "elements")   /* of a shape, or of a list of shapes */ \
  _(Length, "length")       /* axes of a shape, or shapes of a list */ \
  _(AxisSum, "axis_sum")    /* a list of shapes, and an index: the sum of these extents */ \
  _(Axes, "axes")           /* `value` parts, side by side */ \
  _(Leading, "leading")     /* a shape without its last `value` axes */ \
  _(WithAxis, "with_axis")  /* a shape, an index, and what the axis there becomes */ \
  _(Broadcast, "broadcast") /* two shapes from the last axis on; 1 gives way to the other */ \
  _(Packed, "packed")       /* a shape, and whether its last axis is of two codes a byte */
// clang-format on
PLANQ_DEFINE(RuleOp, PLANQ_RULE_OP_NAMES)

// How a field is stored. Shapes come last.
enum class FieldStorage : std::uint8_t { None, Byte, Int32, Int64, Number, Shape, ShapeList };

struct RuleNode {
  RuleOp op = RuleOp::Constant;
  std::uint8_t size = 1;  // of the expression: so many nodes, this one first
  FieldStorage storage = FieldStorage::None;
  std::uint16_t offset = 0;  // of the field
  std::int64_t value = 0;
};

// --- As they are written -------------------------------------------------------------------------

// The most that the rules of an operand have together.
inline constexpr int kRuleNodes = 96;

enum class ScopePart : std::uint8_t { None, Kind, Axis, Size, Rows };

// A node before its field is looked up.
struct RuleTerm {
  RuleNode node;
  std::string_view field = {};
  ScopePart part = ScopePart::None;
  std::string_view vocabulary = {};  // of the enumerators in `value`
};

template <class E>
concept Enumerator = std::is_enum_v<E> && !kNames<E>.empty();

class Rule {
 public:
  constexpr Rule(const char* field) : Rule(RuleTerm{{RuleOp::Field}, field}) {}
  template <class N>
    requires std::integral<N> || Enumerator<N>
  constexpr Rule(N value) : Rule(RuleTerm{{.value = static_cast<std::int64_t>(value)}}) {}

  constexpr explicit Rule(const RuleTerm& term) { terms_[count_++] = term; }
  constexpr Rule(const RuleTerm& term, std::initializer_list<Rule> parts) : Rule(term) {
    for (const Rule& part : parts) append(part);
    terms_[0].node.size = static_cast<std::uint8_t>(count_);
  }
  // What is beyond `count_` was never written.
  constexpr Rule(const Rule& other) { append(other); }
  constexpr Rule& operator=(const Rule& other) {
    for (int i = 0; i < other.count_; ++i) terms_[i] = other.terms_[i];
    count_ = other.count_;
    return *this;
  }

  constexpr std::span<const RuleTerm> terms() const {
    return {terms_, static_cast<std::size_t>(count_)};
  }

 private:
  constexpr void append(const Rule& other) {
    for (int i = 0; i < other.count_; ++i) terms_[count_++] = other.terms_[i];
  }

  RuleTerm terms_[kRuleNodes];
  int count_ = 0;
};

// Conditions: `is("mode", Mode::Asymmetric)`, `is("output_dtype", is_four_bit)`. Of a scope, the
// kind is meant.
template <Enumerator E>
constexpr Rule is_any(std::string_view field, std::int64_t mask) {
  static_assert(kNames<E>.size() < 64);
  constexpr bool kOfScope = std::is_same_v<E, ScopeKind>;
  return Rule({{.op = RuleOp::IsAny, .value = mask},
               field,
               kOfScope ? ScopePart::Kind : ScopePart::None,
               kVocabulary<E>.type});
}
template <Enumerator E, class... More>
constexpr Rule is(std::string_view field, E value, More... more) {
  return is_any<E>(field, ((std::int64_t{1} << static_cast<int>(value)) | ... |
                           (std::int64_t{1} << static_cast<int>(E{more}))));
}
template <Enumerator E>
constexpr Rule is(std::string_view field, bool (*holds)(E)) {
  std::int64_t mask = 0;
  for (std::size_t i = 0; i < kNames<E>.size(); ++i)
    if (holds(static_cast<E>(i))) mask |= std::int64_t{1} << i;
  return is_any<E>(field, mask);
}
constexpr Rule is_set(std::string_view field) { return Rule({{.op = RuleOp::IsSet}, field}); }
constexpr Rule equal(const Rule& a, const Rule& b) { return {{{.op = RuleOp::Equal}}, {a, b}}; }

constexpr Rule when(const Rule& condition, const Rule& then, const Rule& otherwise) {
  return {{{.op = RuleOp::When}}, {condition, then, otherwise}};
}
constexpr Rule operator!(const Rule& a) { return when(a, false, true); }
constexpr Rule operator&&(const Rule& a, const Rule& b) { return when(a, b, false); }
constexpr Rule operator||(const Rule& a, const Rule& b) { return when(a, true, b); }

// Numbers.
constexpr Rule operator+(const Rule& a, const Rule& b) { return {{{.op = RuleOp::Sum}}, {a, b}}; }
constexpr Rule operator*(const Rule& a, const Rule& b) {
  return {{{.op = RuleOp::Product}}, {a, b}};
}
constexpr Rule groups_of(const Rule& extent, const Rule& size) {
  return {{{.op = RuleOp::Groups}}, {extent, size}};
}
constexpr Rule smaller_of(const Rule& a, const Rule& b) {
  return {{{.op = RuleOp::Smaller}}, {a, b}};
}
constexpr Rule axis_of(const Rule& shape, const Rule& index) {
  return {{{.op = RuleOp::AxisOf}}, {shape, index}};
}
constexpr Rule last_of(const Rule& shape) { return axis_of(shape, -1); }
constexpr Rule elements_of(const Rule& shape) { return {{{.op = RuleOp::Elements}}, {shape}}; }
constexpr Rule length_of(const Rule& shape) { return {{{.op = RuleOp::Length}}, {shape}}; }
// Of the shapes of a list, which all have that axis.
constexpr Rule axis_sum_of(const char* shapes, const Rule& index) {
  return {{{.op = RuleOp::AxisSum}}, {shapes, index}};
}
constexpr Rule is_last(const Rule& axis, const Rule& shape) {
  return equal(axis + 1, length_of(shape));
}
constexpr Rule compute_dtype(const char* elements) {
  return when(is(elements, DType::Float64), DType::Float64, DType::Float32);
}

// Shapes.
template <class... Parts>
constexpr Rule axes(const Parts&... parts) {
  return {{{.op = RuleOp::Axes, .value = sizeof...(parts)}}, {Rule(parts)...}};
}
constexpr Rule leading(const Rule& shape, int dropped = 1) {
  return {{{.op = RuleOp::Leading, .value = dropped}}, {shape}};
}
constexpr Rule with_axis(const Rule& shape, const Rule& index, const Rule& extent) {
  return {{{.op = RuleOp::WithAxis}}, {shape, index, extent}};
}
constexpr Rule broadcast(const Rule& a, const Rule& b) {
  return {{{.op = RuleOp::Broadcast}}, {a, b}};
}

// --- As they are evaluated -----------------------------------------------------------------------

// Marks of axes: of extents that are known, and of those that are made of a dim without being it.
inline constexpr std::int8_t kKnownExtent = -1;
constexpr std::int8_t cut_from(int dim) { return static_cast<std::int8_t>(-2 - dim); }

std::int64_t number_of(const RuleNode* rule, const Descriptor& descriptor);
// With dims at their largest. Writes of each axis which dim it is, by its place in the descriptor's
// extras, or a mark.
Shape shape_of(const RuleNode* rule, const Descriptor& descriptor,
               std::array<std::int8_t, kMaxRank>& dims);
// The list that the rule names.
const ShapeList& list_of(const RuleNode* rule, const Descriptor& descriptor);

}  // namespace planq
