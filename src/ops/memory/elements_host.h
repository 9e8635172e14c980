// Elements of tensors of one shape on the host, in rows of neighbours.
#pragma once

#include "host/bind.h"
#include "host/pieces.h"
#include "host/thread_pool.h"

namespace planq::memory {

// Elements that are worth waking a thread for.
inline constexpr std::int64_t kGrain = 1 << 16;

// Calls visit(offsets of the first, count, its index among all) for neighbours
// of every tensor.
template <class Visit>
void each_row(const ElementLayout& layout, int threads, const Visit& visit) {
  host::parallel_for(
      threads, layout.elements(), kGrain, [&](std::int64_t first, std::int64_t last) {
        host::each_piece(layout, first, last,
                         [&](const ElementOffsets& at, std::int64_t count, std::int64_t place) {
                           visit(at, count, first + place);
                         });
      });
}

}  // namespace planq::memory
