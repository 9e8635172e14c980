// The lines of codes that code_sum adds up.
#pragma once

#include "core/index_space.h"
#include "ops/linear/code_sum/desc.h"

namespace planq::code_sum {

// A line has `count` terms, which are `step` codes apart. `columns` lines lie side by side: from
// one to the next it is one code, and one sum. If the terms of a line are neighbours, `columns` is
// 1.
struct Lines {
  IndexSpaceOf<2> space;  // of groups of `columns` lines: codes of the input, sums of the output
  std::int64_t count = 0, step = 1, columns = 1;
};

inline Lines lines_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const OperandView &input = call.operands[kInput], &output = call.operands[kOutput];
  const int last = f.shape.rank - 1, axis = static_cast<int>(f.axis);
  const auto codes = [&](int at) -> std::int64_t {
    if (at == last) return 1;
    return is_four_bit(f.input_dtype) ? 2 * input.strides[at] : input.strides[at];
  };
  Lines lines;
  lines.count = f.shape[axis];
  lines.step = codes(axis);
  if (axis != last) lines.columns = f.shape[last];
  for (int at = 0; at < axis; ++at) {
    AxisOf<2> step;
    step.extent = f.shape[at];
    step.stride = {codes(at), at == output.rank - 1 ? 1 : output.strides[at]};
    lines.space.append(step);
  }
  lines.space.merge();
  return lines;
}

}  // namespace planq::code_sum
