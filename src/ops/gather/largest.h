// What the loops of largest_loops.h have: the largest key of a part of a row, on the host.
#pragma once

#include <cstdint>

namespace planq::gather {

// Elements that are looked at together.
inline constexpr std::int64_t kChunk = 512;

// Of elements first to last of a row.
using LargestKey = std::int64_t (*)(const void* row, std::int64_t first, std::int64_t last);

}  // namespace planq::gather
