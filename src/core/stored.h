// Plans as texts: what one records, and in what a plan of now differs from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/api.h"
#include "core/json.h"

namespace planq {

// A part of two plans that is not the same.
struct Difference {
  std::string part;
  Json stored, now;
};

// Why a text is no stored plan; empty: it is one, and `stored` is what it says. What stands under
// "descriptor" and "preference" is not read.
std::string read_stored(std::string_view text, Json& stored) PLANQ_API(read_stored);

// By name, what is missing in one of the two as null.
std::vector<Difference> differences_of(const Json& stored, const Json& now)
    PLANQ_API(differences_of);

// In a message: all that differs; and that nothing is selected, with the reasons.
std::string mismatch_text(const std::vector<Difference>& differences) PLANQ_API(mismatch_text);
std::string unselected_text(const std::string& reasons) PLANQ_API(unselected_text);

}  // namespace planq
