// Selection: which row runs a descriptor, and why every other row does not. A pure function of
// (descriptor, preference, device facts, build).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/api.h"
#include "core/registry.h"

namespace planq {

// Every field that is set removes rows.
struct Preference {
  Determinism determinism = Determinism::RunToRun;
  bool batch_invariant = false;
  std::optional<std::int64_t> max_ulp;
  std::optional<std::uint64_t> max_workspace_bytes;
  std::optional<Backend> backend;
  std::string sku;  // empty = no pin
};

struct Candidate {
  const Kernel* kernel = nullptr;
  Reason reason;  // empty for the chosen row and for rows that only came later in rank
  bool chosen = false;
  std::size_t workspace = 0;  // meant where the row itself accepts the descriptor
};

struct Selection {
  std::vector<Candidate> candidates;  // in order of preference: (rank, sku)
  const Kernel* chosen = nullptr;
};

PLANQ_API Selection select(const Descriptor& descriptor, const Preference& preference,
                           const Device& device);

}  // namespace planq
