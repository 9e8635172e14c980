// From a run to the kernels of elements.cuh: segments of scattered elements, of any layout.
#pragma once

#include <algorithm>

#include "core/elementwise.h"
#include "ops/affine/ranges/ranges.h"
#include "ops/affine/segments/elements.cuh"
#include "ops/affine/segments/launch.cuh"
#include "ops/affine/segments/parameters/kernels.h"

namespace planq::affine {

template <class In>
ElementArgs<In> element_args(const Launch<In>& launch, const Geometry& g) {
  auto args = launch.template args<ElementArgs<In>>();
  args.segments = g.starts;
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

// Rows of the tensor, and which of the parameters in the workspace their elements have.
template <class In>
void set_rows(const Launch<In>& launch, ElementArgs<In>& args) {
  const SegmentedTensor& t = launch.tensor;
  const OperandView parameters = contiguous_view(parameter_shape(t.shape, t.scope));
  const ElementLayout layout =
      element_layout(t.shape, t.scope,
                     {ElementOperand{launch.operands[kInput]},
                      {launch.operands[kOutput], is_four_bit(t.output_dtype)},
                      {},
                      {&parameters},
                      {}});
  args.rows = layout.rows;
  args.row_count = layout.rows.size();
  args.row_length = layout.length;
  args.row_step = layout.step;
  args.row_divisor = std::max<int64_t>(layout.divisor, 1);
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
