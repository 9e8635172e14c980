// Ranges of segments on the host; see ranges.h. Exact integer maxima, so the number of threads and
// the instruction set change no bit.
#pragma once

#include "core/device.h"
#include "ops/affine/ranges/keys.h"
#include "ops/affine/ranges/ranges.h"

namespace planq::host {

// Writes the ends of every segment, those without elements included. Allocates nothing.
void measure_ranges(const RangeProblem& problem, const RangeOperands& operands,
                    const Stream& stream);

// The loops of the widest instruction set, for elements of type T. `signs`: both ends, and not the
// largest magnitude. `finite`: without NaN and infinities.
template <class T>
RangeLoops<Key<T>> range_loops(bool signs, bool finite);

}  // namespace planq::host
