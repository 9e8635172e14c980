#include "ops/routing/pairs.h"

#include <string>

namespace planq::routing {

Fault check_pairs(std::string_view field, int64_t tokens, int64_t top_k) {
  if (tokens == 0 || top_k <= kMostPairs / tokens) return {};
  return {std::string(field), "expected at most 2^31 - 1 pairs of a token and a rank, got " +
                                  std::to_string(tokens) + " x " + std::to_string(top_k)};
}

}  // namespace planq::routing
