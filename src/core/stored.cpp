#include "core/stored.h"

#include <set>

namespace planq {

std::string read_stored(std::string_view text, Json& stored) {
  const std::string none = "not a stored plan: ";
  std::string fault;
  if (!parse_json(text, stored, fault)) return none + fault;
  for (const char* part : {"descriptor", "preference"})
    if (!stored.is(Json::Kind::Object) || !stored.find(part)) return none + "it has no " + part;
  return "";
}

std::vector<Difference> differences_of(const Json& stored, const Json& now) {
  std::set<std::string> parts(stored.names().begin(), stored.names().end());
  parts.insert(now.names().begin(), now.names().end());
  const auto part_of = [](const Json& plan, const std::string& part) {
    const Json* found = plan.find(part);
    return found ? *found : Json();
  };
  std::vector<Difference> differences;
  for (const std::string& part : parts) {
    Difference each{part, part_of(stored, part), part_of(now, part)};
    if (!(each.stored == each.now)) differences.push_back(std::move(each));
  }
  return differences;
}

std::string mismatch_text(const std::vector<Difference>& differences) {
  std::string text = "the plan differs from the stored one";
  for (const Difference& each : differences)
    text += "\n" + each.part + ": stored " + shown(each.stored) + ", now " + shown(each.now);
  return text;
}

std::string unselected_text(const std::string& reasons) {
  return "this build selects no kernel: " + reasons;
}

}  // namespace planq
