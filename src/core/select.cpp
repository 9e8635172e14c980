#include "core/select.h"

#include <algorithm>

namespace planq {
namespace {

std::vector<const Kernel*> ordered_rows(const Operator& op) {
  std::vector<const Kernel*> rows;
  for (const auto* table : op.tables)
    for (const Kernel& kernel : *table) rows.push_back(&kernel);
  std::sort(rows.begin(), rows.end(), [](const Kernel* a, const Kernel* b) {
    return a->rank != b->rank ? a->rank < b->rank : a->sku < b->sku;
  });
  return rows;
}

Reason rejects_device(const Kernel& kernel, const Device& device) {
  if (kernel.backend != device.backend)
    return Reason::refuse(ReasonKind::Backend, "runs on " + std::string(name_of(kernel.backend)) +
                                                   " streams, the stream is on " +
                                                   std::string(name_of(device.backend)));
  if (device.arch < kernel.arch.first || device.arch > kernel.arch.last)
    return Reason::refuse(ReasonKind::Device,
                          "needs architecture sm_" + std::to_string(kernel.arch.first) +
                              " or later, the device is sm_" + std::to_string(device.arch));
  return Reason::accept();
}

// One condition, one sentence; the order is the order of the fields.
Reason rejects_preference(const Kernel& kernel, const Preference& preference,
                          std::size_t workspace) {
  const auto refuse = [](std::string text) {
    return Reason::refuse(ReasonKind::Preference, std::move(text));
  };
  const Guarantee& promise = kernel.guarantee;
  if (promise.determinism < preference.determinism)
    return refuse("guarantees " + std::string(name_of(promise.determinism.value)) +
                  ", the preference asks for " + std::string(name_of(preference.determinism)));
  if (preference.batch_invariant && !promise.batch_invariant)
    return refuse("is not batch invariant");
  if (preference.max_ulp &&
      (promise.max_ulp == kUlpUnknown || promise.max_ulp > *preference.max_ulp))
    return refuse("guarantees no error of at most " + std::to_string(*preference.max_ulp) + " ulp");
  if (preference.max_workspace_bytes && workspace > *preference.max_workspace_bytes)
    return refuse("needs " + std::to_string(workspace) +
                  " bytes of workspace, the preference allows " +
                  std::to_string(*preference.max_workspace_bytes));
  if (preference.backend && kernel.backend != *preference.backend)
    return refuse("runs on " + std::string(name_of(kernel.backend)) + ", the preference asks for " +
                  std::string(name_of(*preference.backend)));
  if (!preference.sku.empty() && kernel.sku != preference.sku)
    return refuse("the preference pins " + preference.sku);
  return Reason::accept();
}

Reason rejects_workspace(std::size_t workspace) {
  if (workspace <= static_cast<std::size_t>(kMostBytes)) return Reason::accept();
  return Reason::refuse(ReasonKind::Shape, "needs more than 2^63 - 1 bytes of workspace");
}

Candidate examine(const Kernel& kernel, const Descriptor& descriptor, const Preference& preference,
                  const Device& device) {
  Candidate candidate{&kernel, rejects_device(kernel, device), false, 0};
  if (!candidate.reason.accepted()) return candidate;
  candidate.reason = kernel.rejects(descriptor, device);
  if (!candidate.reason.accepted()) return candidate;
  const std::size_t workspace = kernel.workspace(descriptor, device);
  candidate.reason = rejects_workspace(workspace);
  if (!candidate.reason.accepted()) return candidate;
  candidate.workspace = workspace;
  candidate.reason = rejects_preference(kernel, preference, candidate.workspace);
  return candidate;
}

}  // namespace

Selection select(const Descriptor& descriptor, const Preference& preference, const Device& device) {
  Selection selection;
  for (const Kernel* kernel : ordered_rows(*descriptor.op)) {
    Candidate candidate = examine(*kernel, descriptor, preference, device);
    if (candidate.reason.accepted() && !selection.chosen) {
      candidate.chosen = true;
      selection.chosen = kernel;
    }
    selection.candidates.push_back(std::move(candidate));
  }
  return selection;
}

}  // namespace planq
