// Ranges of segments: what is asked for, where its operands are, and how a scope cuts a tensor into
// boxes of equal segments. Both backends measure by this description (ranges_host.h,
// ranges_cuda.h), for any operator that needs ranges.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/scope.h"
#include "core/space.h"

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

// Segments of equal shape: `lines` of `length` consecutive elements each. `starts` and `results`
// number them alike, row-major over the parameters. Offsets of `starts` and `lines` are those of
// kElements; `results` holds one for each RangeEnd.
struct Segments {
  static constexpr int kElements = 0;
  Space starts, lines, results;
  std::int64_t count = 1, line_count = 1, length = 1;
  std::int64_t origin = 0;
  Offsets result_origin{};

  std::int64_t elements() const { return line_count * length; }
};

// Columns beside each other, and the rows that they go down. `inner` neighbours share a segment.
struct Columns {
  Space batches, rows;
  std::int64_t batch_count = 1, row_count = 1, count = 1, inner = 1;
};

// At most one whole box, and one for the shorter segments at the end of each of two axes.
inline constexpr int kMaxBoxes = 4;

namespace ranges {

// A stretch of an axis: `count` groups of `size` elements from group `first` on.
struct Stretch {
  std::int64_t first = 0, count = 0, position = 0, size = 0;
};

// The whole groups of an axis, or what is left behind them.
inline Stretch stretch_of(std::int64_t extent, std::int64_t size, bool rest) {
  size = std::clamp<std::int64_t>(size, 1, std::max<std::int64_t>(extent, 1));
  const std::int64_t whole = extent / size;
  if (!rest) return {0, whole, 0, size};
  return {whole, extent % size != 0 ? 1 : 0, whole * size, extent % size};
}

class BoxBuilder {
 public:
  BoxBuilder(const RangeProblem& problem, const RangeOperands& operands)
      : problem_(problem), operands_(operands) {}

  // The box with the whole groups of every axis, or with the rest of the axes in `rests`.
  Segments build(unsigned rests) const {
    Segments box;
    const int last = problem_.shape.rank - 1;
    for (int i = 0; i <= last; ++i) append(box, i, rests >> i & 1u);
    box.count = box.starts.size();
    box.starts.merge();
    box.results.merge();
    box.lines.merge();
    take_length(box);
    box.line_count = box.lines.size();
    return box;
  }

 private:
  std::int64_t stride(int axis) const {
    return axis + 1 == problem_.shape.rank ? 1 : operands_.input.strides[axis];
  }
  static Axis elements(std::int64_t extent, std::int64_t stride) {
    Axis axis;
    axis.extent = extent;
    axis.stride[Segments::kElements] = stride;
    return axis;
  }

  void append(Segments& box, int axis, bool rest) const {
    const std::int64_t extent = problem_.shape[axis];
    const ParameterAxis along = parameter_axis(problem_.shape, problem_.scope, axis);
    if (along.axis < 0) {
      box.lines.append(elements(extent, stride(axis)));
      return;
    }
    const Stretch part = stretch_of(extent, along.divisor, rest);
    box.starts.append(elements(part.count, stride(axis) * part.size));
    box.lines.append(elements(part.size, stride(axis)));
    box.origin += stride(axis) * part.position;
    Axis result;
    result.extent = part.count;
    for (int end = 0; end < 4; ++end) {
      const std::int64_t step =
          operands_.ends[end].data != nullptr ? operands_.ends[end].strides[along.axis] : 0;
      result.stride[end] = step;
      box.result_origin.at[end] += step * part.first;
    }
    box.results.append(result);
  }

  // Lines that follow one another in memory are one line.
  static void take_length(Segments& box) {
    while (box.lines.rank > 0) {
      const Axis& inner = box.lines.axes[box.lines.rank - 1];
      if (inner.stride[Segments::kElements] != box.length) return;
      box.length *= inner.extent;
      --box.lines.rank;
    }
  }

  const RangeProblem& problem_;
  const RangeOperands& operands_;
};

}  // namespace ranges

// Calls visit(segments, number of the box) for each box of a problem that has segments; numbers
// depend on shape and scope alone.
template <class Visit>
void for_each_box(const RangeProblem& problem, const RangeOperands& operands, Visit&& visit) {
  const ranges::BoxBuilder builder(problem, operands);
  unsigned divided = 0;
  for (int i = 0; i < problem.shape.rank; ++i)
    if (parameter_axis(problem.shape, problem.scope, i).divisor > 1) divided |= 1u << i;
  int number = 0;
  // All subsets of `divided`, from none to all.
  for (unsigned rests = 0;; rests = (rests - divided) & divided) {
    const Segments box = builder.build(rests);
    if (box.count > 0) visit(box, number);
    ++number;
    if (rests == divided) return;
  }
}

// The same segments as columns; false where their elements are not side by side, or where there are
// none: segments without elements lie side by side only by strides of 0.
inline bool columns_of(const Segments& box, Columns& columns) {
  if (box.starts.rank == 0 || box.length == 0) return false;
  columns = {};
  const Axis& side = box.starts.axes[box.starts.rank - 1];
  const std::int64_t stride = side.stride[Segments::kElements];
  const bool single = box.length == 1 && stride == 1;
  const bool runs = box.starts.rank == 1 && stride == box.length;
  if (!single && !runs) return false;
  columns.batches = box.starts;
  --columns.batches.rank;
  columns.batch_count = columns.batches.size();
  columns.rows = box.lines;
  columns.row_count = box.line_count;
  columns.inner = box.length;
  columns.count = side.extent * box.length;
  return true;
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
