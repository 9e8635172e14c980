// Ranges of segments: what is asked for, and where its operands are. Both backends measure by this
// description (host.h, cuda.h), for any operator that needs ranges.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/segments.h"

namespace planq {

// SATURATE: the range of the finite elements. PROPAGATE: the range of all, infinities included, and
// NaN where a segment holds one.
struct RangeProblem {
  Shape shape;
  DType input_dtype = DType::Unset;
  Scope scope;
  Mode mode = Mode::Symmetric;
  NonFinite nonfinite = NonFinite::Propagate;

  bool symmetric() const { return mode == Mode::Symmetric; }
  bool saturate() const { return nonfinite == NonFinite::Saturate; }
};

// The ends of a range as operands. Symmetric ranges have only High, the largest magnitude.
enum RangeEnd : int { kLow, kHigh, kPreviousLow, kPreviousHigh };

// Results are of the compute type. Without previous results a segment stands for itself; an output
// may be its previous operand.
struct RangeOperands {
  OperandView input;
  std::array<OperandView, 4> ends;  // by RangeEnd, in the parameter shape of the scope

  bool update() const { return ends[kPreviousHigh].data != nullptr; }
};

// Segments of which the operand is the input, and where their ends are: `results` numbers them as
// `starts` does, and holds an offset for each RangeEnd.
struct RangeSegments : Segments {
  IndexSpace results;
  Offsets result_origin{};
};

// Calls visit(segments, number of the box) for each box of a problem that has segments; numbers
// depend on shape and scope alone.
template <class Visit>
void for_each_box(const RangeProblem& problem, const RangeOperands& operands, Visit&& visit) {
  const SegmentOperand input[kIndexSpaceOperands] = {{&operands.input}};
  SegmentOperand ends[kIndexSpaceOperands];
  for (int end = 0; end < kIndexSpaceOperands; ++end)
    ends[end] = {operands.ends[end].data ? &operands.ends[end] : nullptr, true};
  for_each_rests(problem.shape, problem.scope, [&](unsigned rests, int number) {
    RangeSegments box{segments_of(problem.shape, problem.scope, input, rests), {}, {}};
    if (box.count == 0) return;
    const Segments results = segments_of(problem.shape, problem.scope, ends, rests);
    box.results = results.starts;
    box.result_origin = results.origin;
    visit(box, number);
  });
}

// A tensor without gaps: ranges in a workspace, or the input of a plan that has none yet.
inline OperandView contiguous_view(const Shape& shape, void* data = nullptr) {
  OperandView view;
  view.data = data;
  std::int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= std::max<std::int64_t>(shape[i], 1);
  }
  return view;
}
inline RangeOperands contiguous_operands(const Shape& shape) {
  return {contiguous_view(shape), {}};
}

}  // namespace planq
