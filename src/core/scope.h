// Where the parameters of a scope are: the shape of scale and zero point, and how far a step along
// an axis of the tensor moves in them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "core/descriptor.h"
#include "core/rules.h"

namespace planq {

constexpr std::int64_t groups_of(std::int64_t extent, std::int64_t size) {
  return extent / size + (extent % size != 0);
}

// The shape of scale and zero point; of Pair, that of the row scales.
inline Shape parameter_shape(const Shape& tensor, const Scope& scope) {
  Shape shape = tensor;
  const int last = tensor.rank - 1;
  switch (scope.kind) {
    case ScopeKind::Tensor:
      return {1, {1}};
    case ScopeKind::Channel:
      return {1, {tensor[scope.axis]}};
    case ScopeKind::Token:
    case ScopeKind::Pair:
      shape.rank -= 1;
      shape[shape.rank] = 0;
      return shape;
    case ScopeKind::Group:
      shape[scope.axis] = groups_of(tensor[scope.axis], scope.size);
      return shape;
    case ScopeKind::Block:
      shape[last - 1] = groups_of(tensor[last - 1], scope.rows);
      shape[last] = groups_of(tensor[last], scope.size);
      return shape;
  }
  return shape;
}

// The same as a rule.
constexpr Rule parameter_shape(const Rule& tensor, std::string_view scope) {
  const auto part = [&](ScopePart which) { return Rule({{RuleOp::Field}, scope, which}); };
  const Rule axis = part(ScopePart::Axis);
  const Rule in_groups =
      with_axis(tensor, axis, groups_of(axis_of(tensor, axis), part(ScopePart::Size)));
  const Rule in_blocks =
      axes(leading(tensor, 2), groups_of(axis_of(tensor, -2), part(ScopePart::Rows)),
           groups_of(last_of(tensor), part(ScopePart::Size)));
  return when(is(scope, ScopeKind::Tensor), 1,
              when(is(scope, ScopeKind::Channel), axis_of(tensor, axis),
                   when(is(scope, ScopeKind::Token, ScopeKind::Pair), leading(tensor),
                        when(is(scope, ScopeKind::Group), in_groups, in_blocks))));
}

// The shape of memory that holds codes of this type: 4-bit ones two to a byte of the last axis.
inline Shape packed_shape(Shape shape, DType dtype) {
  if (is_four_bit(dtype) && shape.rank > 0) shape[shape.rank - 1] = groups_of(shape.last(), 2);
  return shape;
}

constexpr Rule packed_shape(const Rule& shape, std::string_view dtype) {
  return {{{.op = RuleOp::Packed}}, {shape, is(dtype, is_four_bit)}};
}

// Index i along an axis of the tensor has its parameter at index i / divisor of an axis of the
// parameters; none where they do not depend on it.
struct ParameterAxis {
  int axis = -1;
  std::int64_t divisor = 1;
};

inline ParameterAxis parameter_axis(const Shape& tensor, const Scope& scope, int axis) {
  const int last = tensor.rank - 1;
  switch (scope.kind) {
    case ScopeKind::Tensor:
      return {};
    case ScopeKind::Channel:
      return axis == scope.axis ? ParameterAxis{0, 1} : ParameterAxis{};
    case ScopeKind::Token:
    case ScopeKind::Pair:
      return axis < last ? ParameterAxis{axis, 1} : ParameterAxis{};
    case ScopeKind::Group:
      return {axis, axis == scope.axis ? scope.size : 1};
    case ScopeKind::Block:
      return {axis, axis == last ? scope.size : axis == last - 1 ? scope.rows : 1};
  }
  return {};
}

// The same scope with groups in the place of tiles of one row or one column. Parameters have the
// same shape and order.
inline Scope with_groups(const Shape& tensor, const Scope& scope) {
  if (scope.kind != ScopeKind::Block) return scope;
  const int last = tensor.rank - 1;
  if (std::min(scope.rows, tensor[last - 1]) == 1) return {ScopeKind::Group, last, scope.size};
  if (std::min(scope.size, tensor[last]) == 1) return {ScopeKind::Group, last - 1, scope.rows};
  return scope;
}

// Whether a byte may hold codes of two segments, neighbours along the last axis.
inline bool shares_bytes(const Shape& tensor, const Scope& scope, DType codes) {
  const int last = tensor.rank - 1;
  const bool cuts_rows =
      scope.kind == ScopeKind::Block || (scope.kind == ScopeKind::Group && scope.axis == last);
  return is_four_bit(codes) && cuts_rows && scope.size % 2 == 1 && scope.size < tensor[last];
}

}  // namespace planq
