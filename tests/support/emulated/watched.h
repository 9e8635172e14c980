// Operands behind which nothing may be read; for one file of a test. See
// tests/support/emulated_operands.py.
#pragma once

#include <utility>

#include "cuda/mma.cuh"

// From now on this operand is watched.
extern "C" void watch(const void* first, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(first);
  planq::cuda::watched().push_back({at, at + bytes});
}
// Ends it for all, and returns whether a copy read behind one.
extern "C" bool end_watch() {
  planq::cuda::watched().clear();
  return std::exchange(planq::cuda::has_read_behind(), false);
}
