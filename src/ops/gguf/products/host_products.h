// Products on the host of one input with weights that are blocks, as they lie in memory.
#pragma once

#include <cstddef>
#include <span>

#include "core/device.h"
#include "core/scratch.h"
#include "ops/gguf/products/product.h"

namespace planq::gguf {

// Computes products that have one input of codes. Threads share the columns of all of them out
// together.
void multiply(std::span<const Product> products, int threads, const Workspace& workspace);
// The workspace for an input (..., m, k) and weights of so many different types.
std::size_t workspace_of_products(const Shape& input, int types);

}  // namespace planq::gguf
