// A range of the elements of an ElementLayout, cut where rows end.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/elementwise.h"

namespace planq::host {

// Calls visit(offsets of the first element, count, its index behind `first`) for each row that
// [first, last) has elements of.
template <class Visit>
void each_piece(const ElementLayout& layout, std::int64_t first, std::int64_t last,
                const Visit& visit) {
  for (std::int64_t at = first, count; at < last; at += count) {
    const std::int64_t row = at / layout.length, column = at - row * layout.length;
    count = std::min(layout.length - column, last - at);
    ElementOffsets offsets = layout.rows.offsets(row);
    for (std::int64_t& offset : offsets.at) offset += column;
    visit(offsets, count, at - first);
  }
}

}  // namespace planq::host
