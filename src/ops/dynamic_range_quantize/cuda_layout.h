// The descriptor and the operands as the CUDA rows see them: segments, and the lines that they
// consist of. Like cuda_launch.h, part of cuda.cu alone, which is compiled once per input type.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/load_store.cuh"
#include "ops/dynamic_range_quantize/desc.h"
#include "ops/dynamic_range_quantize/codes.cuh"
#include "ops/dynamic_range_quantize/rows.cuh"

namespace planq::dynamic_range_quantize {
namespace {

#if PLANQ_SLICE == 0
using In = Half;
constexpr DType kIn = DType::Float16;
#elif PLANQ_SLICE == 1
using In = Bfloat16;
constexpr DType kIn = DType::BFloat16;
#elif PLANQ_SLICE == 2
using In = float;
constexpr DType kIn = DType::Float32;
#else
using In = double;
constexpr DType kIn = DType::Float64;
#endif
using C = Compute<In>;
constexpr int kVector = kPerVector<In>;

using std::int64_t;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<int64_t>(n, 1))));
}

// --- The descriptor, as the rows see it --------------------------------------------------------

// Segments and their sizes. A segment is consecutive when its elements follow one another in the
// logical tensor and its codes begin on a byte.
struct Outline {
  int64_t segments, elements;
  int64_t outer = 1, inner = 1;  // channel, group: extents before and after the axis
  bool consecutive;
};

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
  const int64_t groups = ceil_div(shape[axis], f.scope.size);
  const bool whole_bytes = !is_four_bit(f.output_dtype) || f.scope.size % 2 == 0 || groups <= 1;
  const int64_t outer = shape.product(0, axis), inner = shape.product(axis + 1, shape.rank);
  return {outer * groups * inner, std::min(f.scope.size, shape[axis]), outer, inner,
          axis == last && whole_bytes};
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
  int64_t groups = 1, group_divisor = 1, tail = 0;
  bool tail_counts_lines = false;
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

void append_group_axes(const Fields& f, const Strides& strides, Geometry& g) {
  const int last = f.shape.rank - 1, axis = f.scope.axis;
  const int64_t extent = f.shape[axis], size = f.scope.size;
  const int64_t groups = ceil_div(extent, size);
  for (int i = 0; i < last; ++i)
    g.segments.append(i == axis ? strides.axis(groups, i, i, size)
                                : strides.axis(f.shape[i], i, i));
  g.tail_counts_lines = axis != last;
  if (axis == last) {
    g.segments.append(strides.along(groups, size, code_bytes(f, size), last));
    g.length = std::min(size, extent);
  } else {
    g.segments.append(strides.along(f.shape[last], 1, 1, last));
    g.lines.append(strides.axis(std::min(size, extent), axis, -1));
    g.length = 1;
  }
  if (groups > 1 && extent % size != 0) {
    g.groups = groups;
    g.group_divisor = f.shape.product(axis + 1, f.shape.rank);
    g.tail = extent - (groups - 1) * size;
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
      append_group_axes(f, strides, g);
      break;
    default:
      break;
  }
  g.count = g.segments.size();
  g.segments.merge();
  if (f.scope.kind != ScopeKind::Group) join_lines(f, g);
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
