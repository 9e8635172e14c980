// Gemms of several experts, whose rows of input lie one after another, as plain data for both
// backends: those of grouped_linear.
#pragma once

#include <algorithm>

#include "ops/linear/gemm.h"
#include "ops/linear/weight_only/codes.h"

namespace planq::linear {

// The most of a gemm: sm90/expert_tiles.cuh has a thread for each.
inline constexpr int kMostExperts = 1024;

// Rows of the input.
struct ExpertRows {
  std::int64_t first = 0, end = 0;
};

struct Experts {
  Gemm gemm;  // of all rows, by the weights of the first expert
  // Of the first expert, if weights alone are codes. Then `gemm` has no weights.
  WeightCodes codes;
  std::int64_t count = 0;
  const std::int32_t* offset = nullptr;  // count + 1
  // From an expert to the next: codes, and elements of the others.
  std::int64_t code_step = 0, scale_step = 0, zero_point_step = 0, bias_step = 0;

  // The gemm by an expert's weights, still of all rows.
  PLANQ_HD Gemm gemm_of(std::int64_t expert) const {
    Gemm own = gemm;
    if (own.weight.data) own.weight.data += expert * code_step;
    Epilogue& e = own.epilogue;
    e.weight_scale =
        detail::moved(e.weight_scale, expert * scale_step * detail::element_bytes(e.scale_dtype));
    e.bias = detail::moved(e.bias, expert * bias_step * detail::element_bytes(e.bias_dtype));
    return own;
  }
  PLANQ_HD WeightCodes codes_of(std::int64_t expert) const {
    WeightCodes own = codes;
    own.data += expert * code_step / (is_four_bit(codes.dtype) ? 2 : 1);
    BlockStatistics& stored = own.scales.stored;
    if (own.scales.are_nested())
      own.scales.first_nested = expert * scale_step;
    else
      stored.absmax =
          detail::moved(stored.absmax, expert * scale_step * detail::element_bytes(stored.dtype));
    if (codes.scales.tensor_scale) own.scales.tensor_scale += expert;
    own.zero_point = detail::moved(
        codes.zero_point, expert * zero_point_step * detail::element_bytes(codes.zero_point_dtype));
    return own;
  }

  // The expert that a row belongs to: the first one whose rows end behind it. -1: none does, which
  // is so before the first offset and from the last one on. Offsets that decrease, or lie outside
  // of the input, take no row from an expert before.
  PLANQ_HD std::int64_t expert_of(std::int64_t row) const {
    if (row < offset[0]) return -1;
    for (std::int64_t e = 0; e < count; ++e)
      if (row < offset[e + 1]) return e;
    return -1;
  }
  // The same the other way: the rows of the expert that comes next, where `end` is the end of those
  // before.
  PLANQ_HD ExpertRows rows_of(std::int64_t expert, std::int64_t end) const {
    const std::int64_t next = offset[expert + 1] < gemm.m ? offset[expert + 1] : gemm.m;
    return {end, next > end ? next : end};
  }
  // Where the rows of the first expert begin.
  PLANQ_HD std::int64_t begin() const {
    const std::int64_t first = offset[0] < gemm.m ? offset[0] : gemm.m;
    return first > 0 ? first : 0;
  }
};

}  // namespace planq::linear
