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

// Every field that is set removes kernels.
struct Preference {
  Determinism determinism = Determinism::RunToRun;
  bool batch_invariant = false;
  std::optional<std::int64_t> max_ulp;
  std::optional<std::uint64_t> max_workspace_bytes;
  std::optional<Backend> backend;
  std::string sku, body;  // empty = no pin
};

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

// The kernel that runs a descriptor, or null: that of select(), without the reasons.
const Kernel* choose(const Descriptor& descriptor, const Preference& preference,
                     const Device& device);
// The kernels of an operator in order of preference.
std::span<const Kernel* const> ordered_kernels(const Operator& op) PLANQ_API(ordered_kernels);
// Those of them that a device has and that no field but a shape rules out, remembered for the next
// descriptor that differs in shapes alone: an engine asks for new ones in every step.
std::shared_ptr<const std::vector<const Kernel*>> kernels_for(const Descriptor& descriptor,
                                                              const Device& device);
// What becomes of one kernel, by itself: nothing is chosen.
Candidate examine(const Kernel& kernel, const Descriptor& descriptor, const Preference& preference,
                  const Device& device);
Selection select(const Descriptor& descriptor, const Preference& preference, const Device& device)
    PLANQ_API(select);

}  // namespace planq
