// What the operand tables of several operators of the gguf family share. Rules name the field
// `type`.
#pragma once

#include <cstdint>

#include "core/operands.h"
#include "ops/gguf/vocabulary.h"

namespace planq::gguf {

// A number that the field `type` chooses.
constexpr Rule chosen_by_type(int (*number)(GgufType)) {
  constexpr int kTypes = static_cast<int>(kNames<GgufType>.size());
  Rule rule(number(GgufType{}));
  for (int i = 1; i < kTypes; ++i) {
    const int own = number(static_cast<GgufType>(i));
    std::int64_t same = 0;
    bool is_first = true;
    for (int k = 0; k < kTypes; ++k) {
      if (number(static_cast<GgufType>(k)) != own) continue;
      same |= std::int64_t{1} << k;
      is_first = is_first && k >= i;
    }
    if (is_first) rule = when(is_any<GgufType>("type", same), own, rule);
  }
  return rule;
}

// The bytes of a row of whole blocks that has the last extent of a shape.
constexpr Rule bytes_of_row(const char* shape) {
  return groups_of(last_of(shape), chosen_by_type(elements_of)) * chosen_by_type(bytes_of);
}
// The shape of blocks that stand for numbers of `shape`.
inline constexpr Rule kShapeOfBlocks = with_axis("shape", -1, bytes_of_row("shape"));

}  // namespace planq::gguf
