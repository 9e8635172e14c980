// The ends of ranges as they are stored: what both backends do with the extremes that they found.
#pragma once

#include "math/ieee.h"

namespace planq::math {

// The end that is stored for a segment whose extreme is `found`, or that has no elements (`none`),
// beside the end from before, or nullptr. Zeros are positive and NaN canonical.
template <bool kHigh, class C>
PLANQ_HD C stored_end(C found, bool none, const C* previous, bool saturate) {
  if (previous != nullptr && !(saturate && is_nan(*previous))) {
    const C before = *previous;
    const bool further = kHigh ? before > found : before < found;
    if (none || further || is_nan(before)) found = before;
    none = false;
  }
  if (none || found == C{0}) return C{0};
  return is_nan(found) ? canonical_nan<C>() : found;
}

}  // namespace planq::math
