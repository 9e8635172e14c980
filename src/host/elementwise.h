// Functions for host kernels that need no workspace and prepare nothing.
#pragma once

#include <cstdint>

#include "core/registry.h"
#include "host/bind.h"
#include "math/formats.h"

namespace planq::host {

using math::Stored;

inline std::size_t no_workspace(const Descriptor&, const Device&) { return 0; }

inline Status nothing_to_prepare(const Descriptor&, const Device&, State&) {
  return Status::success();
}

}  // namespace planq::host
