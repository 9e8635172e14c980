#include "core/rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace planq {
namespace {

struct Extent {
  std::int64_t value = 0;  // of a dim, its largest
  std::int8_t dim = kKnownExtent;

  bool is_known() const { return dim == kKnownExtent; }
};

// The mark of what is made of both without being either.
std::int8_t cut_of(const Extent& a, const Extent& b) {
  const std::int8_t dim = a.is_known() ? b.dim : a.dim;
  return dim < 0 ? dim : cut_from(dim);
}

// What does not fit stays the largest.
Extent times(const Extent& a, const Extent& b) {
  for (const auto& [factor, other] : {std::pair(a, b), std::pair(b, a)}) {
    if (factor.is_known() && factor.value == 0) return factor;
    if (factor.is_known() && factor.value == 1) return other;
  }
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a.value, b.value, &product))
    product = std::numeric_limits<std::int64_t>::max();
  return {product, cut_of(a, b)};
}

Extent plus(const Extent& a, const Extent& b) {
  if (b.is_known() && b.value == 0) return a;
  return {a.value + b.value, cut_of(a, b)};
}

// One at most is a group of its own, whatever the size.
Extent divided(const Extent& extent, const Extent& size) {
  if (size.is_known() && (size.value == 1 || extent.value <= 1)) return extent;
  return {extent.value / size.value + (extent.value % size.value != 0), cut_of(extent, size)};
}

Extent smaller(const Extent& a, const Extent& b) {
  if (b.is_known() && a.value <= b.value) return a;
  return {a.value < b.value ? a.value : b.value, cut_of(a, b)};
}

struct Axes {
  int rank = 0;
  std::array<Extent, kMaxRank> at;

  void append(const Extent& extent) {
    if (rank == kMaxRank) throw std::logic_error("an operand has more axes than there may be");
    at[static_cast<std::size_t>(rank++)] = extent;
  }
  void append(const Axes& other) {
    for (int axis = 0; axis < other.rank; ++axis) append(other.at[static_cast<std::size_t>(axis)]);
  }
  // An index may count from the end. Null: there is no such axis.
  Extent* find(std::int64_t index) {
    const std::int64_t axis = index < 0 ? index + rank : index;
    return axis < 0 || axis >= rank ? nullptr : &at[static_cast<std::size_t>(axis)];
  }
};

// Reads expressions, whose parts follow one another: each function goes on to what comes next.
class Reader {
 public:
  Reader(const RuleNode* rule, const Descriptor& descriptor)
      : next_(rule), descriptor_(descriptor) {}

  Extent number();
  void append(Axes& all);

  Axes axes() {
    Axes all;
    append(all);
    return all;
  }

 private:
  template <class T>
  const T& field(const RuleNode& node) const {
    return *reinterpret_cast<const T*>(descriptor_.storage.data() + node.offset);
  }
  std::int64_t stored(const RuleNode& node) const;
  bool is_set(const RuleNode& node) const;
  Extent extent_of(const RuleNode& node, int axis) const;

  // Calls read() with a reader of the part that the condition chooses.
  template <class Read>
  auto choose(const Read& read) {
    const bool holds = number().value != 0;
    const RuleNode* const otherwise = next_ + next_->size;
    const RuleNode* const end = otherwise + otherwise->size;
    if (!holds) next_ = otherwise;
    Reader chosen(*this);
    next_ = end;
    return read(chosen);
  }

  template <class Compute>
  Extent of_two(const Compute& compute) {
    const Extent a = number();
    return compute(a, number());
  }
  Extent axis();
  Extent elements();
  std::int64_t length();
  std::int64_t axis_sum();
  bool at_list() const { return next_->storage == FieldStorage::ShapeList; }
  void append_field(const RuleNode& node, Axes& all) const;
  void append_leading(const RuleNode& node, Axes& all);
  void append_with_axis(Axes& all);
  void append_broadcast(Axes& all);
  void append_packed(Axes& all);

  const RuleNode* next_;
  const Descriptor& descriptor_;
};

// --- Fields --------------------------------------------------------------------------------------

std::int64_t Reader::stored(const RuleNode& node) const {
  switch (node.storage) {
    case FieldStorage::Byte:
      return field<std::uint8_t>(node);
    case FieldStorage::Int32:
      return field<std::int32_t>(node);
    default:
      return field<std::int64_t>(node);
  }
}

bool Reader::is_set(const RuleNode& node) const {
  if (node.storage == FieldStorage::Number) return !std::isnan(field<double>(node));
  return stored(node) != node.value;
}

Extent Reader::extent_of(const RuleNode& node, int axis) const {
  Extent extent{field<Shape>(node)[axis]};
  if (!descriptor_.extras) return extent;
  const std::size_t offset =
      node.offset + offsetof(Shape, dims) + static_cast<std::size_t>(axis) * sizeof(std::int64_t);
  for (const DimUse& use : descriptor_.extras->uses)
    if (use.offset == offset) extent.dim = static_cast<std::int8_t>(use.dim);
  return extent;
}

// --- Numbers -------------------------------------------------------------------------------------

Extent Reader::number() {
  const RuleNode& node = *next_++;
  switch (node.op) {
    case RuleOp::Field:
      return {stored(node)};
    case RuleOp::IsAny:
      return {node.value >> stored(node) & 1};
    case RuleOp::IsSet:
      return {is_set(node)};
    case RuleOp::Equal:
      return of_two([](const Extent& a, const Extent& b) { return Extent{a.value == b.value}; });
    case RuleOp::When:
      return choose([](Reader& chosen) { return chosen.number(); });
    case RuleOp::Sum:
      return of_two(plus);
    case RuleOp::Product:
      return of_two(times);
    case RuleOp::Groups:
      return of_two(divided);
    case RuleOp::Smaller:
      return of_two(smaller);
    case RuleOp::AxisOf:
      return axis();
    case RuleOp::Elements:
      return elements();
    case RuleOp::Length:
      return {length()};
    case RuleOp::AxisSum:
      return {axis_sum()};
    default:
      return {node.value};
  }
}

Extent Reader::axis() {
  Axes shape = axes();
  const Extent* found = shape.find(number().value);
  return found ? *found : Extent{1};
}

Extent Reader::elements() {
  Extent count{1};
  if (!at_list()) {
    const Axes shape = axes();
    for (int axis = 0; axis < shape.rank; ++axis)
      count = times(count, shape.at[static_cast<std::size_t>(axis)]);
    return count;
  }
  count.value = 0;
  for (const Shape& shape : field<ShapeList>(*next_++)) count.value += shape.elements();
  return count;
}

std::int64_t Reader::length() { return at_list() ? field<ShapeList>(*next_++).count : axes().rank; }

// The shapes of a list have no dims. What does not fit stays the largest.
std::int64_t Reader::axis_sum() {
  const ShapeList& list = field<ShapeList>(*next_++);
  const std::int64_t index = number().value;
  std::int64_t sum = 0;
  for (const Shape& shape : list) {
    const auto axis = static_cast<int>(index < 0 ? index + shape.rank : index);
    if (__builtin_add_overflow(sum, shape[axis], &sum))
      return std::numeric_limits<std::int64_t>::max();
  }
  return sum;
}

// --- Shapes --------------------------------------------------------------------------------------

void Reader::append(Axes& all) {
  const RuleNode& node = *next_++;
  switch (node.op) {
    case RuleOp::When:
      return choose([&](Reader& chosen) { chosen.append(all); });
    case RuleOp::Axes:
      for (std::int64_t part = 0; part < node.value; ++part) append(all);
      return;
    case RuleOp::Leading:
      return append_leading(node, all);
    case RuleOp::WithAxis:
      return append_with_axis(all);
    case RuleOp::Broadcast:
      return append_broadcast(all);
    case RuleOp::Packed:
      return append_packed(all);
    case RuleOp::Field:
      if (node.storage == FieldStorage::Shape) return append_field(node, all);
      [[fallthrough]];
    default:
      --next_;
      all.append(number());
  }
}

void Reader::append_field(const RuleNode& node, Axes& all) const {
  for (int axis = 0; axis < field<Shape>(node).rank; ++axis) all.append(extent_of(node, axis));
}

void Reader::append_leading(const RuleNode& node, Axes& all) {
  Axes shape = axes();
  shape.rank -= static_cast<int>(node.value);
  all.append(shape);
}

void Reader::append_with_axis(Axes& all) {
  Axes shape = axes();
  Extent* const changed = shape.find(number().value);
  const Extent extent = number();
  if (changed) *changed = extent;
  all.append(shape);
}

void Reader::append_broadcast(Axes& all) {
  Axes a = axes(), b = axes();
  for (int axis = -std::max(a.rank, b.rank); axis < 0; ++axis) {
    const Extent *of_a = a.find(axis), *of_b = b.find(axis);
    const bool gives_way = !of_a || (of_b && of_a->is_known() && of_a->value == 1);
    all.append(gives_way ? *of_b : *of_a);
  }
}

void Reader::append_packed(Axes& all) {
  Axes shape = axes();
  Extent* const last = shape.find(-1);
  if (number().value != 0 && last) *last = divided(*last, {2});
  all.append(shape);
}

}  // namespace

std::int64_t number_of(const RuleNode* rule, const Descriptor& descriptor) {
  return Reader(rule, descriptor).number().value;
}

Shape shape_of(const RuleNode* rule, const Descriptor& descriptor,
               std::array<std::int8_t, kMaxRank>& dims) {
  const Axes axes = Reader(rule, descriptor).axes();
  Shape shape;
  shape.rank = axes.rank;
  for (int axis = 0; axis < axes.rank; ++axis) {
    const auto& [value, dim] = axes.at[static_cast<std::size_t>(axis)];
    shape[axis] = value;
    dims[static_cast<std::size_t>(axis)] = dim;
  }
  return shape;
}

const ShapeList& list_of(const RuleNode* rule, const Descriptor& descriptor) {
  return *reinterpret_cast<const ShapeList*>(descriptor.storage.data() + rule->offset);
}

}  // namespace planq
