// Pairs of a token and a rank: the experts that a router has chosen for a token, one to a rank.
// Each pair has a row of its own, and rows are those of tensors (tokens, top_k, width).
#pragma once

#include <cstdint>
#include <string_view>

#include "core/descriptor.h"
#include "core/host_device.h"
#include "core/operands.h"
#include "core/status.h"

namespace planq::routing {

using std::int64_t;

// Rows are numbered in int32.
inline constexpr int64_t kMostPairs = (int64_t{1} << 31) - 1;
// The row of a pair whose expert is elsewhere.
inline constexpr std::int32_t kNoRow = -1;

Fault check_pairs(std::string_view field, int64_t tokens, int64_t top_k);

// Where row r is, which is row r % top_k of token r / top_k: in units of `size` elements, of which
// strides are multiples.
struct PairRows {
  int64_t top_k, token, rank;

  PairRows(int64_t ranks, const OperandView& view, int64_t size)
      : top_k(ranks), token(view.strides[0] / size), rank(view.strides[1] / size) {}

  PLANQ_HD int64_t offset(int64_t row) const {
    const int64_t own = row / top_k;
    return own * token + (row - own * top_k) * rank;
  }
};

}  // namespace planq::routing
