// The one order in which planq adds up floats: neighbours in pairs, then pairs of sums and so on,
// as if +0 filled the list up to a power of two. So the sums of aligned parts, 2^k elements each,
// are sums of the tree themselves, and a backend may cut a list into such parts as it likes: what
// adds them up in the same way has the bits of the whole.
#pragma once

#include <cstdint>

namespace planq::math {

// The part that threads take at a time.
inline constexpr int kSumLeaf = 1024;

}  // namespace planq::math
