// Sums on the host in the order of math/tree_sum.h.
#pragma once

#include <cstdint>

namespace planq::host {

// The sum of `count` numbers; 0 where there are none. The numbers are written over. A number
// without a neighbour is not added to +0, so a -0 stays -0.
template <class C>
C tree_sum_over(C* values, std::int64_t count);

}  // namespace planq::host
