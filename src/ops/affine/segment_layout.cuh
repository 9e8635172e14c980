// A tensor that is quantized segment by segment, as CUDA kernels see it: how many segments of what
// size, and where they and the lines that they consist of lie in every operand.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/operands.h"
#include "core/scope.h"
#include "cuda/launch.cuh"
#include "ops/affine/segments.cuh"

namespace planq::affine {

using cuda::ceil_div;
using cuda::power_of_two;
using std::int64_t;

// What decides where segments lie.
struct SegmentedTensor {
  Shape shape;
  Scope scope;  // as with_groups() gives it
  DType output_dtype = DType::Unset;

  // The size of the pieces into which groups or tiles cut an axis.
  int64_t piece(int axis) const { return parameter_axis(shape, scope, axis).divisor; }
  int64_t code_bytes(int64_t elements) const {
    return is_four_bit(output_dtype) ? ceil_div(elements, 2) : elements;
  }
};

// By QuantizeOperand.
using QuantizeOperands = std::array<const OperandView*, 4>;

// --- Sizes -------------------------------------------------------------------------------------

// Segments and their sizes. A segment is consecutive when its elements follow one another in the
// logical tensor and its codes begin on a byte.
struct Outline {
  int64_t segments, elements;
  int64_t outer = 1, inner = 1;  // channel: extents before and after the axis
  bool consecutive;
};

inline Outline outline(const SegmentedTensor& t) {
  const Shape& shape = t.shape;
  const int last = shape.rank - 1, axis = t.scope.axis;
  switch (t.scope.kind) {
    case ScopeKind::Tensor:
      return {1, shape.elements(), 1, 1, true};
    case ScopeKind::Token:
      return {shape.product(0, last), shape.last(), 1, 1, true};
    case ScopeKind::Channel: {
      const int64_t outer = shape.product(0, axis), inner = shape.product(axis + 1, shape.rank);
      return {shape[axis], outer * inner, outer, inner, outer == 1 && axis != last};
    }
    default:
      break;
  }
  int64_t elements = 1;
  for (int i = 0; i <= last; ++i)
    if (const int64_t size = t.piece(i); size > 1) elements *= std::min(size, shape[i]);
  const bool runs = t.scope.kind == ScopeKind::Group && axis == last &&
                    !shares_bytes(shape, t.scope, t.output_dtype);
  return {parameter_shape(shape, t.scope).elements(), elements, 1, 1, runs};
}

template <class In>
int64_t vectors_of(int64_t elements) {
  return ceil_div(elements, kPerVector<In>);
}

// --- Operands become spaces --------------------------------------------------------------------

struct Geometry {
  Space segments, lines;
  int64_t count = 1, line_count = 1, length = 1;
  Tail tail, line_tail;  // of `length` and of `line_count`
};

class Strides {
 public:
  explicit Strides(const QuantizeOperands& operands) : operands_(operands) {}
  // The same axis in input and output, and one of the parameters' axes (or none).
  Axis axis(int64_t extent, int axis, int parameter_axis, int64_t step = 1) const {
    Axis result;
    result.extent = extent;
    result.stride[kInput] = operands_[kInput]->strides[axis] * step;
    result.stride[kOutput] = operands_[kOutput]->strides[axis] * step;
    if (parameter_axis >= 0) set_parameters(result, parameter_axis);
    return result;
  }
  // Steps of `elements` along the last axis.
  Axis along(int64_t extent, int64_t elements, int64_t bytes, int parameter_axis) const {
    Axis result;
    result.extent = extent;
    result.stride[kInput] = elements;
    result.stride[kOutput] = bytes;
    set_parameters(result, parameter_axis);
    return result;
  }

 private:
  void set_parameters(Axis& axis, int parameter_axis) const {
    axis.stride[kScale] = operands_[kScale]->strides[parameter_axis];
    axis.stride[kZeroPoint] = operands_[kZeroPoint]->strides[parameter_axis];
  }
  const QuantizeOperands& operands_;
};

// Lines that follow one another in memory, in input and output, are one line.
inline void join_lines(const SegmentedTensor& t, Geometry& g) {
  g.lines.merge();
  while (g.lines.rank > 0) {
    const Axis& inner = g.lines.axes[g.lines.rank - 1];
    const bool whole_bytes = !is_four_bit(t.output_dtype) || g.length % 2 == 0;
    if (!whole_bytes || inner.stride[kInput] != g.length ||
        inner.stride[kOutput] != t.code_bytes(g.length))
      break;
    g.length *= inner.extent;
    --g.lines.rank;
  }
}

// The pieces of every axis are segments; inside one, they are lines, along the last axis elements.
inline void append_piece_axes(const SegmentedTensor& t, const Strides& strides, Geometry& g) {
  const Shape parameters = parameter_shape(t.shape, t.scope);
  const int last = t.shape.rank - 1;
  for (int i = 0; i <= last; ++i) {
    const int64_t extent = t.shape[i], pieces = parameters[i];
    const int64_t size = std::min(t.piece(i), std::max<int64_t>(extent, 1));
    g.segments.append(i == last ? strides.along(pieces, size, t.code_bytes(size), i)
                                : strides.axis(pieces, i, i, size));
    if (i == last)
      g.length = size;
    else
      g.lines.append(strides.axis(size, i, -1));
    if (pieces > 1 && extent % size != 0)
      (i == last ? g.tail : g.line_tail) =
          Tail{pieces, parameters.product(i + 1, t.shape.rank), extent % size};
  }
}

inline Geometry geometry_of(const SegmentedTensor& t, const QuantizeOperands& operands) {
  const Strides strides(operands);
  const int last = t.shape.rank - 1, axis = t.scope.axis;
  Geometry g;
  g.length = t.shape[last];
  switch (t.scope.kind) {
    case ScopeKind::Tensor:
      for (int i = 0; i < last; ++i) g.lines.append(strides.axis(t.shape[i], i, -1));
      break;
    case ScopeKind::Token:
      for (int i = 0; i < last; ++i) g.segments.append(strides.axis(t.shape[i], i, i));
      break;
    case ScopeKind::Channel:
      for (int i = 0; i < last; ++i)
        (i == axis ? g.segments : g.lines).append(strides.axis(t.shape[i], i, i == axis ? 0 : -1));
      if (axis == last) {
        g.segments.append(strides.along(t.shape[last], 1, 1, 0));
        g.length = 1;
      }
      break;
    case ScopeKind::Group:
    case ScopeKind::Block:
      append_piece_axes(t, strides, g);
      break;
    default:
      break;
  }
  g.count = g.segments.size();
  g.segments.merge();
  const bool cuts = t.scope.kind == ScopeKind::Group || t.scope.kind == ScopeKind::Block;
  if (!cuts) join_lines(t, g);
  g.line_count = g.lines.size();
  return g;
}

// Whether every line begins where vectors of the input and words of the codes begin.
template <class In>
bool aligned(const QuantizeOperands& operands, const Space& lines, int word_bytes) {
  const auto divides = [](const void* address, int bytes) {
    return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
  };
  bool result = divides(operands[kInput]->data, cuda::kVectorBytes) &&
                divides(operands[kOutput]->data, word_bytes);
  for (int i = 0; i < lines.rank; ++i)
    result = result && lines.axes[i].stride[kInput] % kPerVector<In> == 0 &&
             lines.axes[i].stride[kOutput] % word_bytes == 0;
  return result;
}

}  // namespace planq::affine
