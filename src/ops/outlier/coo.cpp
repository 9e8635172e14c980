#include "ops/outlier/coo.h"

#include <cmath>
#include <string>

#include "core/checks.h"

namespace planq::outlier {

Fault check_threshold(double& threshold) {
  threshold += 0.0;  // -0 and +0 make equal descriptors
  if (threshold >= 0 && std::isfinite(threshold)) return {};
  return {"threshold", "expected a finite number of at least 0, got " + checks::number(threshold)};
}

Fault check_capacity(int64_t capacity) {
  if (capacity >= 0 && capacity <= kMostIndices) return {};
  return {"capacity", "expected 0 to 2^31 - 1, got " + std::to_string(capacity)};
}

}  // namespace planq::outlier
