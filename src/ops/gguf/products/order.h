// What the order of a product's sums is made of: docs/numerics/gguf.md has it.
#pragma once

namespace planq::gguf {

// Codes of the input that share a scale.
inline constexpr int kGroup = 32;
// Terms whose products are added up in one chain that begins at zero.
inline constexpr int kSpan = 256;

}  // namespace planq::gguf
