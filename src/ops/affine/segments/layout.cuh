// A tensor that is quantized segment by segment, as CUDA kernels see it: how many segments of what
// size, and where they and the lines that they consist of lie in every operand.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/operands.h"
#include "core/segments.h"
#include "cuda/launch.cuh"
#include "ops/affine/segments/segments.cuh"

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
  const int last = t.shape.rank - 1, axis = t.scope.axis;
  Outline o{parameter_shape(t.shape, t.scope).elements(), 1, 1, 1, false};
  for (int i = 0; i <= last; ++i) {
    const ParameterAxis along = parameter_axis(t.shape, t.scope, i);
    if (along.axis < 0)
      o.elements *= t.shape[i];
    else if (along.divisor > 1)
      o.elements *= std::min(along.divisor, t.shape[i]);
  }
  switch (t.scope.kind) {
    case ScopeKind::Channel:
      o.outer = t.shape.product(0, axis);
      o.inner = t.shape.product(axis + 1, t.shape.rank);
      o.consecutive = o.outer == 1 && axis != last;
      break;
    case ScopeKind::Group:
      o.consecutive = axis == last && !shares_bytes(t.shape, t.scope, t.output_dtype);
      break;
    default:
      o.consecutive = t.scope.kind != ScopeKind::Block;
  }
  return o;
}

template <class In>
int64_t vectors_of(int64_t elements) {
  return ceil_div(elements, kPerVector<In>);
}

// --- Operands become index spaces --------------------------------------------------------------

// All segments in one box, as kernels see it: offsets in the output count bytes, and `tail` and
// `line_tail` say which segments have fewer elements in a line, and fewer lines.
struct Geometry : Segments {
  Tail tail, line_tail;
};

// Offsets in bytes of codes, of which two share one.
inline void count_bytes(const SegmentedTensor& t, IndexSpace& space) {
  if (!is_four_bit(t.output_dtype)) return;
  for (int i = 0; i < space.rank; ++i) space.axes[i].stride[kOutput] /= 2;
}

inline Geometry geometry_of(const SegmentedTensor& t, const QuantizeOperands& operands) {
  const SegmentOperand views[] = {{operands[kInput]},
                                  {operands[kOutput], false, is_four_bit(t.output_dtype)},
                                  {operands[kScale], true},
                                  {operands[kZeroPoint], true}};
  const bool cuts = t.scope.kind == ScopeKind::Group || t.scope.kind == ScopeKind::Block;
  // The lines of shorter segments are none of the others', so they stay apart.
  const LineKind kind = cuts ? LineKind::Rows : LineKind::Joined;
  Geometry g{segments_of(t.shape, t.scope, views, kAllSegments, kind), {}, {}};
  count_bytes(t, g.starts);
  count_bytes(t, g.lines);
  const Shape parameters = parameter_shape(t.shape, t.scope);
  const int last = t.shape.rank - 1;
  for (int i = 0; i <= last && cuts; ++i)
    if (const int64_t rest = t.shape[i] % t.piece(i); parameters[i] > 1 && rest != 0)
      (i == last ? g.tail : g.line_tail) =
          Tail{parameters[i], parameters.product(i + 1, t.shape.rank), rest};
  return g;
}

// The rows of the view [rows, columns] of the tensor, or false where there is none.
inline bool view_rows(const SegmentedTensor& t, const QuantizeOperands& operands, int64_t columns,
                      IndexSpace& rows) {
  const SegmentOperand views[kIndexSpaceOperands] = {
      {operands[kInput]}, {operands[kOutput], false, is_four_bit(t.output_dtype)}};
  const Segments all = segments_of(t.shape, Scope{}, views, kAllSegments);
  if (columns == 0 || all.length % columns != 0) return false;
  rows = all.lines;
  Axis row;
  row.extent = all.length / columns;
  row.stride[kInput] = row.stride[kOutput] = columns;
  rows.append(row);
  rows.merge();
  count_bytes(t, rows);
  return true;
}

// Whether every line begins where vectors of the input and words of the codes begin.
template <class In>
bool aligned(const QuantizeOperands& operands, const IndexSpace& lines, int word_bytes) {
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
