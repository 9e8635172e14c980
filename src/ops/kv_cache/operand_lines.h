// What the operators of a cache share: its types, and the shapes of its pages and scales. Rules
// name the operators' fields.
#pragma once

#include "core/operands.h"
#include "ops/kv_cache/vocabulary.h"

namespace planq::kv_cache {

constexpr bool is_code(DType dtype) {
  return dtype == DType::Int8 || dtype == DType::Float8E4M3FN || dtype == DType::Float8E5M2;
}

constexpr Rule pages_of(const Rule& heads, const Rule& columns) {
  return when(is("layout", CacheLayout::Nhd), axes("pages", "page_size", heads, columns),
              axes("pages", heads, "page_size", columns));
}
// Scales that are measured have pages like those of codes, without columns.
constexpr Rule scales_of(const Rule& heads) {
  const Rule pages = when(is("layout", CacheLayout::Nhd), axes("pages", "page_size", heads),
                          axes("pages", heads, "page_size"));
  return when(is("scale_scope", CacheScale::Token), pages,
              when(is("scale_scope", CacheScale::Head), heads, 1));
}
constexpr Rule scale_role() {
  return when(is("scale_scope", CacheScale::Token), Role::InOut, Role::Input);
}

}  // namespace planq::kv_cache
