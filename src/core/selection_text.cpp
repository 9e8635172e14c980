#include "core/selection_text.h"

#include <algorithm>
#include <map>

#include "core/json.h"

namespace planq {
namespace {

// Kernels that were written for something else altogether are counted, not listed.
bool is_counted(const SelectionLine& line) {
  for (const ReasonKind kind : {ReasonKind::Backend, ReasonKind::DType, ReasonKind::Scope})
    if (line.reason_kind == name_of(kind)) return true;
  return false;
}

std::string aligned_right(std::string text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}
std::string aligned_left(std::string text, std::size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

SelectionLine line_of(const Operator& op, const Candidate& candidate) {
  const std::string reason = candidate.reason.text();
  return {std::string(candidate.kernel->sku.view()),
          std::string(candidate.kernel->body),
          candidate.kernel->rank,
          candidate.workspace,
          verdict_text(candidate.chosen, reason),
          std::string(name_of(candidate.reason.kind)),
          constraint_texts(op, *candidate.kernel)};
}

}  // namespace

std::vector<std::string> constraint_texts(const Operator& op, const Kernel& kernel) {
  std::vector<std::string> texts;
  for (const Constraint& constraint : kernel.constraints)
    texts.push_back(std::string(op.operands[static_cast<std::size_t>(constraint.operand)].name) +
                    ": " + constraint_text(constraint));
  return texts;
}

std::string verdict_text(bool chosen, std::string_view reason) {
  if (chosen) return "chosen";
  return reason.empty() ? "accepted, but a kernel above it is preferred" : std::string(reason);
}

std::string selection_text(const std::vector<SelectionLine>& lines) {
  std::size_t skus = 0, bodies = 4;
  std::map<std::string, int> counts;
  for (const SelectionLine& line : lines) {
    if (is_counted(line)) {
      ++counts[line.reason_kind];
      continue;
    }
    skus = std::max(skus, line.sku.size());
    bodies = std::max(bodies, line.body.size());
  }
  if (skus == 0) skus = 3;
  std::string table = aligned_left("sku", skus) + "  " + aligned_left("body", bodies) +
                      "  rank  workspace  verdict";
  const auto add = [&](const std::string& line) {
    table += '\n';
    table += line;
  };
  std::string_view above;
  for (const SelectionLine& line : lines) {
    if (is_counted(line)) continue;
    add(aligned_left(line.sku == above ? "" : line.sku, skus) + "  " +  // bodies of a SKU: a group
        aligned_left(line.body, bodies) + "  " + aligned_right(std::to_string(line.rank), 4) +
        "  " + aligned_right(std::to_string(line.workspace), 9) + "  " + line.verdict);
    for (const std::string& asked : line.constraints)
      add(aligned_left("", skus) + "  asks " + asked);
    above = line.sku;
  }
  for (const auto& [kind, count] : counts)
    add("... and " + std::to_string(count) + " kernels for another " + kind);
  return table;
}

namespace {

// The names of the bodies that were written for this backend, these dtypes and this scope.
std::vector<std::string> bodies_among(const std::vector<SelectionLine>& lines) {
  std::vector<std::string> bodies;
  for (const SelectionLine& line : lines)
    if (!is_counted(line) && std::find(bodies.begin(), bodies.end(), line.body) == bodies.end())
      bodies.push_back(line.body);
  return bodies;
}

}  // namespace

std::string no_kernel_sentence(std::string_view op, const Preference& preference,
                               const std::vector<SelectionLine>& lines) {
  const std::string of = " of " + std::string(op);
  const auto is_pinned = [&](const SelectionLine& line) { return line.sku == preference.sku; };
  if (!preference.sku.empty() && std::none_of(lines.begin(), lines.end(), is_pinned))
    return "no kernel" + of + " is called " + shown(Json::text(preference.sku));
  const std::vector<std::string> bodies = bodies_among(lines);
  if (!preference.body.empty() &&
      std::find(bodies.begin(), bodies.end(), preference.body) == bodies.end()) {
    std::string names;
    for (const std::string& body : bodies) names += (names.empty() ? "" : ", ") + body;
    return "no body" + of + " is called " + shown(Json::text(preference.body)) + "; there are " +
           (names.empty() ? "none" : names);
  }
  return "no kernel" + of + " takes this descriptor";
}

std::string no_kernel_text(const Descriptor& descriptor, const Preference& preference,
                           const Device& device) {
  const Operator& op = *descriptor.op;
  std::vector<SelectionLine> lines;
  for (const Candidate& candidate : select(descriptor, preference, device).candidates)
    lines.push_back(line_of(op, candidate));
  return no_kernel_sentence(op.name, preference, lines) + "\n" + selection_text(lines);
}

}  // namespace planq
