// A scope as it is given to a descriptor: by its parts, or as a text such as "group(128, axis=0)".
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/api.h"
#include "core/descriptor.h"

namespace planq {

// Its axis may be beyond 32 bits.
struct WideScope {
  ScopeKind kind = ScopeKind::Tensor;
  std::int64_t axis = 0, size = 0, rows = 0;

  // The number of a part, of which a block calls its size "columns".
  std::int64_t& part(std::string_view name) {
    return name == "axis" ? axis : name == "rows" ? rows : size;
  }
};

// What a scope's kind has beside itself.
struct ScopeForm {
  ScopeKind kind;
  std::vector<std::string_view> required;
  bool has_axis = false;  // with a default

  bool has(std::string_view name) const {
    return std::find(required.begin(), required.end(), name) != required.end() ||
           (name == "axis" && has_axis);
  }
  // Before any of its parts is read.
  WideScope unread() const { return {kind, has_axis ? -1 : 0}; }
};

const std::vector<ScopeForm>& scope_forms() PLANQ_API(scope_forms);

// Whether a text is a kind and, in brackets, its parts: numbers in their order, and then such as
// have names.
bool read_scope_text(std::string_view text, WideScope& scope) PLANQ_API(read_scope_text);

}  // namespace planq
