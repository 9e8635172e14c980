#include "core/select.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>

namespace planq {
namespace {

// The kernels of every operator in order, once.
using Order = std::unordered_map<const Operator*, std::vector<const Kernel*>>;

Order order_all() {
  Order orders;
  for (const Operator* op : operators()) {
    std::vector<const Kernel*>& kernels = orders[op];
    for (const auto* table : op->tables)
      for (const Kernel& kernel : *table) kernels.push_back(&kernel);
    std::sort(kernels.begin(), kernels.end(), [](const Kernel* a, const Kernel* b) {
      return std::tuple(a->rank, a->sku.view(), a->body) <
             std::tuple(b->rank, b->sku.view(), b->body);
    });
  }
  return orders;
}

Reason rejects_arch(const ArchRange& range, std::int32_t arch) {
  if (range.last >= kLastArch)
    return Reason::refuse(ReasonKind::Device, "needs architecture sm_", range.first,
                          " or later, the device is sm_", arch);
  if (range.first == range.last)
    return Reason::refuse(ReasonKind::Device, "needs architecture sm_", range.first,
                          ", the device is sm_", arch);
  return Reason::refuse(ReasonKind::Device, "needs architecture sm_", range.first, " to sm_",
                        range.last, ", the device is sm_", arch);
}

Reason rejects_device(const Kernel& kernel, const Device& device) {
  if (kernel.backend != device.backend)
    return Reason::refuse(ReasonKind::Backend, "runs on ", name_of(kernel.backend),
                          " streams, the stream is on ", name_of(device.backend));
  if (device.arch < kernel.arch.first || device.arch > kernel.arch.last)
    return rejects_arch(kernel.arch, device.arch);
  return Reason::accept();
}

// One condition, one sentence; the order is the order of the fields.
Reason rejects_promise(const Kernel& kernel, const Descriptor& descriptor,
                       const Preference& preference) {
  const Guarantee& promise = kernel.guarantee;
  constexpr ReasonKind kKind = ReasonKind::Preference;
  if (promise.determinism < preference.determinism)
    return Reason::refuse(kKind, "guarantees ", name_of(promise.determinism.value),
                          ", the preference asks for ", name_of(preference.determinism));
  if (preference.batch_invariant) {
    if (!promise.batch_invariant) return Reason::refuse(kKind, "is not batch invariant");
    if (Reason reason = descriptor.op->rows(descriptor); !reason.accepted()) return reason;
  }
  if (preference.max_ulp &&
      (promise.max_ulp == kUlpUnknown || promise.max_ulp > *preference.max_ulp))
    return Reason::refuse(kKind, "guarantees no error of at most ", *preference.max_ulp, " ulp");
  return Reason::accept();
}

Reason rejects_preference(const Kernel& kernel, const Descriptor& descriptor,
                          const Preference& preference, std::size_t workspace) {
  constexpr ReasonKind kKind = ReasonKind::Preference;
  if (Reason reason = rejects_promise(kernel, descriptor, preference); !reason.accepted())
    return reason;
  const auto& limit = preference.max_workspace_bytes;
  if (limit && workspace > static_cast<std::size_t>(*limit))
    return Reason::refuse(kKind, "needs ", workspace, " bytes of workspace, the preference allows ",
                          *limit);
  if (preference.backend && kernel.backend != *preference.backend)
    return Reason::refuse(kKind, "runs on ", name_of(kernel.backend), ", the preference asks for ",
                          name_of(*preference.backend));
  if (!preference.sku.empty() && kernel.sku.view() != preference.sku)
    return Reason::refuse(kKind, "the preference pins ", std::string_view(preference.sku));
  if (!preference.body.empty() && kernel.body != preference.body)
    return Reason::refuse(kKind, "the preference pins the body ",
                          std::string_view(preference.body));
  return Reason::accept();
}

Reason rejects_workspace(std::size_t workspace) {
  if (workspace <= static_cast<std::size_t>(kMostBytes)) return Reason::accept();
  return Reason::refuse(ReasonKind::Shape, "needs more than 2^63 - 1 bytes of workspace");
}

}  // namespace

Candidate examine(const Kernel& kernel, const Descriptor& descriptor, const Preference& preference,
                  const Device& device) {
  Candidate candidate{&kernel, rejects_device(kernel, device)};
  if (!candidate.reason.accepted()) return candidate;
  candidate.reason = kernel.rejects(descriptor, device);
  if (!candidate.reason.accepted()) return candidate;
  const std::size_t workspace = workspace_of(kernel, descriptor, device);
  candidate.reason = rejects_workspace(workspace);
  if (!candidate.reason.accepted()) return candidate;
  candidate.workspace = workspace;
  candidate.reason = rejects_preference(kernel, descriptor, preference, workspace);
  return candidate;
}

std::size_t workspace_of(const Kernel& kernel, const Descriptor& descriptor, const Device& device) {
  const auto size = descriptor.count_dims() > 0 && kernel.largest_workspace
                        ? kernel.largest_workspace
                        : kernel.workspace;
  return size(descriptor, device);
}

std::span<const Field> preference_fields() {
  static const Preference initial;
#define PLANQ_ENTRY(Type, name, ...) make_field(#name, offsetof(Preference, name), &initial.name),
  static const Field fields[] = {PLANQ_PREFERENCE(PLANQ_ENTRY)};
#undef PLANQ_ENTRY
  return fields;
}

std::span<const Kernel* const> ordered_kernels(const Operator& op) {
  static const Order orders = order_all();
  return orders.at(&op);
}

namespace {

using Kernels = std::shared_ptr<const std::vector<const Kernel*>>;

// Everything of a descriptor and a device that kernels_for() may depend on.
std::string key_of(const Descriptor& descriptor, const Device& device) {
  auto fields = descriptor.storage;
  for (const Field& field : descriptor.op->fields)
    if (field.kind == FieldKind::Shape || field.kind == FieldKind::ShapeList ||
        field.kind == FieldKind::IntegerList || field.kind == FieldKind::EnumerationList)
      std::memset(fields.data() + field.offset, 0, field.size);
  std::string key(reinterpret_cast<const char*>(fields.data()), fields.size());
  const auto append = [&](const auto& value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  append(descriptor.op);
  append(device.backend);
  append(device.arch);
  return key;
}

// Elements and scopes of other kernels are ruled out whatever the shapes are.
bool rules_out(ReasonKind kind) { return kind == ReasonKind::DType || kind == ReasonKind::Scope; }

Kernels find_kernels(const Descriptor& descriptor, const Device& device) {
  auto found = std::make_shared<std::vector<const Kernel*>>();
  for (const Kernel* kernel : ordered_kernels(*descriptor.op)) {
    if (!rejects_device(*kernel, device).accepted()) continue;
    const Reason reason = kernel->rejects(descriptor, device);
    if (reason.accepted() || !rules_out(reason.kind)) found->push_back(kernel);
  }
  return found;
}

}  // namespace

Kernels kernels_for(const Descriptor& descriptor, const Device& device) {
  constexpr std::size_t kMostKept = 1024;
  static std::mutex mutex;
  static std::unordered_map<std::string, Kernels> kept;
  std::string key = key_of(descriptor, device);
  {
    const std::lock_guard lock(mutex);
    if (const auto at = kept.find(key); at != kept.end()) return at->second;
  }
  // Unlocked: a kernel that is made of other operators asks for theirs here.
  Kernels found = find_kernels(descriptor, device);
  const std::lock_guard lock(mutex);
  if (kept.size() >= kMostKept) kept.clear();
  return kept[std::move(key)] = std::move(found);
}

Candidate choose(const Descriptor& descriptor, const Preference& preference, const Device& device) {
  const Kernels kernels = kernels_for(descriptor, device);
  for (const Kernel* kernel : *kernels) {
    Candidate candidate = examine(*kernel, descriptor, preference, device);
    candidate.chosen = candidate.reason.accepted();
    if (candidate.chosen) return candidate;
  }
  return {};
}

Selection select(const Descriptor& descriptor, const Preference& preference, const Device& device) {
  Selection selection;
  for (const Kernel* kernel : ordered_kernels(*descriptor.op)) {
    Candidate& candidate =
        selection.candidates.emplace_back(examine(*kernel, descriptor, preference, device));
    if (candidate.reason.accepted() && !selection.chosen) {
      candidate.chosen = true;
      selection.chosen = kernel;
    }
  }
  return selection;
}

}  // namespace planq
