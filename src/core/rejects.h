// Sentences in which kernels say what they were compiled for.
#pragma once

#include <string>
#include <string_view>

#include "core/dtype.h"
#include "core/status.h"

namespace planq {

// Accepts a field that is what the kernel was compiled for.
template <class E>
Reason expect(ReasonKind kind, std::string_view field, E own, E asked) {
  if (own == asked) return Reason::accept();
  return Reason::refuse(kind, "computes ", field, " ", name_of(own), ", not ", name_of(asked));
}

}  // namespace planq
