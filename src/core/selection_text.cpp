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
  std::size_t width = 0;
  std::map<std::string, int> counts;
  for (const SelectionLine& line : lines) {
    if (is_counted(line))
      ++counts[line.reason_kind];
    else
      width = std::max(width, line.sku.size());
  }
  if (width == 0) width = 3;
  std::string table = aligned_left("sku", width) + "  rank  workspace  verdict";
  const auto add = [&](const std::string& line) {
    table += '\n';
    table += line;
  };
  for (const SelectionLine& line : lines) {
    if (is_counted(line)) continue;
    add(aligned_left(line.sku, width) + "  " + aligned_right(std::to_string(line.rank), 4) + "  " +
        aligned_right(std::to_string(line.workspace), 9) + "  " + line.verdict);
    for (const std::string& asked : line.constraints)
      add(aligned_left("", width) + "  asks " + asked);
  }
  for (const auto& [kind, count] : counts)
    add("... and " + std::to_string(count) + " kernels for another " + kind);
  return table;
}

std::string no_kernel_sentence(std::string_view op, std::string_view sku, bool known) {
  const std::string none = "no kernel of " + std::string(op);
  if (sku.empty() || known) return none + " takes this descriptor";
  return none + " is called " + shown(Json::text(sku));
}

std::string no_kernel_text(const Descriptor& descriptor, const Preference& preference,
                           const Device& device) {
  const Operator& op = *descriptor.op;
  std::vector<SelectionLine> lines;
  bool known = false;
  for (const Candidate& candidate : select(descriptor, preference, device).candidates) {
    lines.push_back(line_of(op, candidate));
    known = known || candidate.kernel->sku.view() == preference.sku;
  }
  return no_kernel_sentence(op.name, preference.sku, known) + "\n" + selection_text(lines);
}

}  // namespace planq
