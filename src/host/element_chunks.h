// Tensors of one shape on the host, in chunks of neighbours that stay in a first-level cache while
// several loops go over them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/elementwise.h"
#include "host/thread_pool.h"

namespace planq::host {

// Elements of a chunk.
inline constexpr std::int64_t kElementChunk = 512;
// Elements that are worth waking a thread for, where each takes a nanosecond or so.
inline constexpr std::int64_t kChunkGrain = 1 << 14;

// Calls visit(offsets of the row, column of the first element, count) for chunks of rows.
template <class Visit>
void each_chunk(const ElementLayout& layout, int threads, const Visit& visit) {
  parallel_for(threads, layout.elements(), kChunkGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t at = first, count; at < last; at += count) {
      const std::int64_t row = at / layout.length, column = at - row * layout.length;
      count = std::min({layout.length - column, last - at, kElementChunk});
      visit(layout.rows.offsets(row), column, count);
    }
  });
}

}  // namespace planq::host
