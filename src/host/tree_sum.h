// Sums on the host in the order of math/tree_sum.h.
#pragma once

#include <cstdint>

namespace planq::host {

// The sum of `count` numbers, 0 of none; they are written over. Of numbers that may be -0, that of
// an odd one out keeps its sign.
template <class C>
C tree_sum_over(C* values, std::int64_t count);

}  // namespace planq::host
