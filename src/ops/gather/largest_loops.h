// The largest key of neighbours, for one instruction set. No include guard: see
// host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

// Of elements first to last of a row. The place is looked for only where a chunk has a larger
// element than those before it.
template <class T>
std::int64_t largest_key(const void* row, std::int64_t first, std::int64_t last) {
  float values[gather::kChunk];
  std::int32_t orders[gather::kChunk];
  std::int32_t best = std::numeric_limits<std::int32_t>::min();
  std::int64_t key = gather::kNoKey;
  for (std::int64_t at = first; at < last; at += gather::kChunk) {
    const std::int64_t count = std::min(gather::kChunk, last - at);
    widen<T>(static_cast<const T*>(row) + at, count, values);
    std::int32_t largest = std::numeric_limits<std::int32_t>::min();
    for (std::int64_t i = 0; i < count; ++i) orders[i] = gather::order_of(values[i]);
    for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, orders[i]);
    if (largest <= best) continue;
    best = largest;
    const auto place = std::find(orders, orders + count, largest) - orders;
    key = gather::key_of(best, static_cast<std::uint32_t>(at + place));
    if (best == gather::kNanOrder) break;
  }
  return key;
}

template <class T>
inline constexpr gather::LargestKey kLargestKey = largest_key<T>;

}  // namespace planq::host::PLANQ_LEVEL
