// From a run to the kernels of elements.cuh: segments of scattered elements, of any layout.
#pragma once

#include <algorithm>

#include "ops/affine/elements.cuh"
#include "ops/affine/parameter_kernels.h"
#include "ops/affine/quantize_launch.cuh"

namespace planq::affine {

template <class In>
ElementArgs<In> element_args(const Launch<In>& launch, const Geometry& g) {
  auto args = launch.template args<ElementArgs<In>>();
  args.segments = g.segments;
  args.lines = g.lines;
  args.count = g.count;
  args.line_count = g.line_count;
  args.length = g.length;
  args.tail = g.tail;
  args.line_tail = g.line_tail;
  return args;
}

// A block for each segment: whatever other kernels do not take.
template <Codes kCodes, class In>
Status launch_lines(const Launch<In>& launch, const Geometry& g) {
  return launch.run(quantize_lines<In, kCodes>, launch.grid(g.count, kSplitThreads),
                    element_args(launch, g));
}

// Index of the parameters along every axis, in the place of the scale's offset.
template <class In>
void set_rows(const Launch<In>& launch, ElementArgs<In>& args) {
  const SegmentedTensor& t = launch.tensor;
  const Strides strides(launch.operands);
  const int last = t.shape.rank - 1;
  const Shape parameters = parameter_shape(t.shape, t.scope);
  // How far a piece of an axis moves in the parameters.
  const auto step = [&](int axis) {
    const int along = parameter_axis(t.shape, t.scope, axis).axis;
    return along < 0 ? 0 : parameters.product(along + 1, parameters.rank);
  };
  for (int i = 0; i < last; ++i) {
    Axis row = strides.axis(t.shape[i], i, -1);
    row.stride[kScale] = step(i);
    row.divisor = t.piece(i);
    if (row.divisor > 1) row.grouped = 1u << kScale;
    args.rows.append(row);
  }
  args.rows.merge();
  args.row_count = args.rows.size();
  args.row_length = t.shape[last];
  args.row_step = step(last);
  args.row_divisor = t.piece(last);
}

template <class In>
std::size_t element_workspace(const SegmentedTensor& tensor) {
  Scratch scratch;
  scratch.take<math::SegmentParameters<Compute<In>>>(
      static_cast<std::size_t>(outline(tensor).segments));
  return scratch.bytes();
}

template <Codes kCodes, class In>
Status launch_elements(const Launch<In>& launch) {
  const Geometry g = launch.geometry();
  ElementArgs<In> args = element_args(launch, g);
  Scratch scratch(launch.workspace);
  args.parameters =
      scratch.take<math::SegmentParameters<Compute<In>>>(static_cast<std::size_t>(g.count));
  set_rows(launch, args);
  PLANQ_TRY(launch.run(parameter_kernels<In>().element_ranges,
                       launch.grid(std::min(g.count, cuda::kMaxIndex), kSplitThreads), args));
  const int64_t bytes = args.row_count * launch.tensor.code_bytes(args.row_length);
  return launch.run(
      element_codes<In, kCodes>,
      launch.grid(std::min(ceil_div(bytes, kSplitThreads), cuda::kMaxIndex), kSplitThreads, true),
      args);
}

template <class In, Codes kCodes>
Status preload_elements() {
  return preload_all(parameter_kernels<In>().element_ranges, element_codes<In, kCodes>);
}

}  // namespace planq::affine
