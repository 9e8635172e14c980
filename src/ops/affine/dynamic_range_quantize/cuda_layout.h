// The descriptor and the operands as the CUDA rows see them: segments, and the lines that they
// consist of. Like cuda_launch.h, for the input type of the file alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/element.cuh"
#include "cuda/load_store.cuh"
#include "ops/affine/dynamic_range_quantize/desc.h"
#include "ops/affine/encode.cuh"
#include "ops/affine/rows.cuh"

namespace planq::dynamic_range_quantize {
namespace {

using namespace affine;

using In = cuda::Element;
constexpr DType kIn = cuda::kElement;
using C = Compute<In>;
constexpr int kVector = kPerVector<In>;

using std::int64_t;

// Sizes of groups and tiles may be as large as numbers are.
int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
int64_t power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<int64_t>(n, 1))));
}

// --- The descriptor, as the rows see it --------------------------------------------------------

// Segments and their sizes. A segment is consecutive when its elements follow one another in the
// logical tensor and its codes begin on a byte.
struct Outline {
  int64_t segments, elements;
  int64_t outer = 1, inner = 1;  // channel: extents before and after the axis
  bool consecutive;
};

// The size of the pieces into which groups or tiles cut an axis.
int64_t piece_of(const Fields& f, int axis) {
  return parameter_axis(f.shape, f.scope, axis).divisor;
}

Outline outline(const Fields& f) {
  const Shape& shape = f.shape;
  const int last = shape.rank - 1, axis = f.scope.axis;
  switch (f.scope.kind) {
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
    if (const int64_t size = piece_of(f, i); size > 1) elements *= std::min(size, shape[i]);
  const bool runs = f.scope.kind == ScopeKind::Group && axis == last && !shares_bytes(f);
  return {parameter_shape(f).elements(), elements, 1, 1, runs};
}

int64_t vectors_of(int64_t elements) { return ceil_div(elements, kVector); }

constexpr int64_t kBlockVectors = kRowThreads * 8;
constexpr int kMaxCluster = 8;
// From here on, few segments leave most of a GPU idle unless each has several multiprocessors.
constexpr int64_t kSpreadVectors = 1536;
// Shorter runs inside a channel are better read as columns.
constexpr int64_t kShortRun = 512;

bool spreads(const Outline& o, const Device& device) {
  return device.arch >= 90 && vectors_of(o.elements) >= kSpreadVectors &&
         o.segments * kMaxCluster <= device.multiprocessors;
}

// --- Operands become spaces --------------------------------------------------------------------

struct Geometry {
  Space segments, lines;
  int64_t count = 1, line_count = 1, length = 1;
  Tail tail, line_tail;  // of `length` and of `line_count`
};

class Strides {
 public:
  explicit Strides(const Operands& operands) : operands_(operands) {}
  // The same axis in input and output, and one of the parameters' axes (or none).
  Axis axis(int64_t extent, int axis, int parameter_axis, int64_t step = 1) const {
    Axis result;
    result.extent = extent;
    result.stride[kInput] = operands_[kInput].strides[axis] * step;
    result.stride[kOutput] = operands_[kOutput].strides[axis] * step;
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
    axis.stride[kScale] = operands_[kScale].strides[parameter_axis];
    axis.stride[kZeroPoint] = operands_[kZeroPoint].strides[parameter_axis];
  }
  const Operands& operands_;
};

int64_t code_bytes(const Fields& f, int64_t elements) {
  return is_four_bit(f.output_dtype) ? (elements + 1) / 2 : elements;
}

// Lines that follow one another in memory, in input and output, are one line.
void join_lines(const Fields& f, Geometry& g) {
  g.lines.merge();
  while (g.lines.rank > 0) {
    const Axis& inner = g.lines.axes[g.lines.rank - 1];
    const bool whole_bytes = !is_four_bit(f.output_dtype) || g.length % 2 == 0;
    if (!whole_bytes || inner.stride[kInput] != g.length ||
        inner.stride[kOutput] != code_bytes(f, g.length))
      break;
    g.length *= inner.extent;
    --g.lines.rank;
  }
}

// The pieces of every axis are segments; inside one, they are lines, along the last axis elements.
void append_piece_axes(const Fields& f, const Strides& strides, Geometry& g) {
  const Shape parameters = parameter_shape(f);
  const int last = f.shape.rank - 1;
  for (int i = 0; i <= last; ++i) {
    const int64_t extent = f.shape[i], pieces = parameters[i];
    const int64_t size = std::min(piece_of(f, i), std::max<int64_t>(extent, 1));
    g.segments.append(i == last ? strides.along(pieces, size, code_bytes(f, size), i)
                                : strides.axis(pieces, i, i, size));
    if (i == last)
      g.length = size;
    else
      g.lines.append(strides.axis(size, i, -1));
    if (pieces > 1 && extent % size != 0)
      (i == last ? g.tail : g.line_tail) =
          Tail{pieces, parameters.product(i + 1, f.shape.rank), extent % size};
  }
}

Geometry geometry_of(const Fields& f, const Operands& operands) {
  const Strides strides(operands);
  const int last = f.shape.rank - 1, axis = f.scope.axis;
  Geometry g;
  g.length = f.shape[last];
  switch (f.scope.kind) {
    case ScopeKind::Tensor:
      for (int i = 0; i < last; ++i) g.lines.append(strides.axis(f.shape[i], i, -1));
      break;
    case ScopeKind::Token:
      for (int i = 0; i < last; ++i) g.segments.append(strides.axis(f.shape[i], i, i));
      break;
    case ScopeKind::Channel:
      for (int i = 0; i < last; ++i)
        (i == axis ? g.segments : g.lines).append(strides.axis(f.shape[i], i, i == axis ? 0 : -1));
      if (axis == last) {
        g.segments.append(strides.along(f.shape[last], 1, 1, 0));
        g.length = 1;
      }
      break;
    case ScopeKind::Group:
    case ScopeKind::Block:
      append_piece_axes(f, strides, g);
      break;
    default:
      break;
  }
  g.count = g.segments.size();
  g.segments.merge();
  const bool cuts = f.scope.kind == ScopeKind::Group || f.scope.kind == ScopeKind::Block;
  if (!cuts) join_lines(f, g);
  g.line_count = g.lines.size();
  return g;
}

// Whether every line begins where vectors of the input and words of the codes begin.
bool aligned(const Operands& operands, const Space& lines, int word_bytes) {
  const auto divides = [](const void* address, int bytes) {
    return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
  };
  bool result = divides(operands[kInput].data, cuda::kVectorBytes) &&
                divides(operands[kOutput].data, word_bytes);
  for (int i = 0; i < lines.rank; ++i)
    result = result && lines.axes[i].stride[kInput] % kVector == 0 &&
             lines.axes[i].stride[kOutput] % word_bytes == 0;
  return result;
}

}  // namespace
}  // namespace planq::dynamic_range_quantize
