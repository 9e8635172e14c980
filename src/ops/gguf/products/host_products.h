// Products on the host of one input with weights that are blocks, as they lie in memory.
#pragma once

#include <cstddef>
#include <span>

#include "core/device.h"
#include "core/scratch.h"
#include "ops/gguf/vocabulary.h"
#include "ops/linear/gemm.h"

namespace planq::gguf {

// Of the gemm's weights, a row's stride counts bytes; a row of its input, which is int8 codes, has
// a scale for every kGroup of them, side by side.
struct Product {
  GgufType type = GgufType::Q4_0;
  linear::Gemm gemm;
};

// The most that are computed together.
inline constexpr int kMostProducts = 8;

// Computes products that have one input. Threads share the columns of all of them out together.
void multiply(std::span<const Product> products, int threads, const Workspace& workspace);
// The workspace for an input (..., m, k) and weights of so many different types.
std::size_t workspace_of_products(const Shape& input, int types);

}  // namespace planq::gguf
