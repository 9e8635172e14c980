// Conversions of a chunk, for one instruction set: see host.cpp. No include guard: see
// host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

template <class T, class U>
inline constexpr unary::Loops kUnaryLoops = {widen<T>, narrow<U>};

}  // namespace planq::host::PLANQ_LEVEL
