// Selection: which kernel runs a descriptor, and why every other does not. A pure function of
// (descriptor, preference, device facts, build).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/api.h"
#include "core/registry.h"

namespace planq {

// The fields of a preference: type, name and default. Each that is set removes kernels. The type
// says how a field is read and printed (FieldKind); the filter is in select.cpp.
#define PLANQ_PREFERENCE(_)                                         \
  _(Determinism, determinism, Determinism::RunToRun)                \
  _(bool, batch_invariant, false)                                   \
  _(std::optional<std::int64_t>, max_ulp, {})                       \
  _(std::optional<std::int64_t>, max_workspace_bytes, {})           \
  _(OptionalEnum<Backend>, backend, {}) /* None: the stream's */    \
  _(std::string, sku, {})               /* of those that may run */ \
  _(std::string, body, {})              /* likewise */

struct Preference {
#define PLANQ_MEMBER(Type, name, initial) Type name = initial;
  PLANQ_PREFERENCE(PLANQ_MEMBER)
#undef PLANQ_MEMBER
};
// One entry for each of them: the table that everything else is made by.
std::span<const Field> preference_fields() PLANQ_API(preference_fields);

struct Candidate {
  const Kernel* kernel = nullptr;
  Reason reason;  // accepted of the chosen kernel and of those that only came later in rank
  bool chosen = false;
  std::size_t workspace = 0;  // meant where the kernel itself accepts the descriptor
};

struct Selection {
  std::vector<Candidate> candidates;  // in order of preference: (rank, sku, body)
  const Kernel* chosen = nullptr;
};

// The chosen candidate of select(), without the others; its kernel is null where there is none.
Candidate choose(const Descriptor& descriptor, const Preference& preference, const Device& device);
// The kernels of an operator in order of preference.
std::span<const Kernel* const> ordered_kernels(const Operator& op) PLANQ_API(ordered_kernels);
// Those of them that a device has and that no field but a shape rules out, remembered for the next
// descriptor that differs in shapes alone: an engine asks for new ones in every step.
std::shared_ptr<const std::vector<const Kernel*>> kernels_for(const Descriptor& descriptor,
                                                              const Device& device);
// What becomes of one kernel, by itself: nothing is chosen.
Candidate examine(const Kernel& kernel, const Descriptor& descriptor, const Preference& preference,
                  const Device& device);
// Bytes for every extent of a descriptor that a kernel takes.
std::size_t workspace_of(const Kernel& kernel, const Descriptor& descriptor, const Device& device);
Selection select(const Descriptor& descriptor, const Preference& preference, const Device& device)
    PLANQ_API(select);

}  // namespace planq
