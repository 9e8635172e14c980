// Products on CUDA of one input with weights that are blocks: host_products.h has those of the
// host. All kernels give the same bits. They are in linear_gguf: products.cu there chooses among
// them.
#pragma once

#include <span>

#include "core/bound.h"
#include "core/device.h"
#include "ops/gguf/products/product.h"

namespace planq::gguf {

// --- Of codes, by the kernels that are fastest ---------------------------------------------------

// Loads the kernels.
Status preload_products(GgufType type, const Device& device);
// Those with small weights are one launch.
Status launch_products(std::span<const Product> products, const Device& device, Bound& bound);

// --- By the kernels for small weights ------------------------------------------------------------

// Load the kernels, which have all types that there are of small weights.
Status preload_small_products(const Device& device);
Status preload_small_products_of_floats();
// Whether they take the product of codes, and are the fastest.
bool is_small(const Product& product);
// Whether they take all products of an input that is one row of floats.
bool are_small_of_floats(std::span<const Product> products);
// Of codes, the products that is_small(); of floats, which are_small_of_floats(), all.
Status launch_small_products(std::span<const Product> products, const Device& device, Bound& bound);

}  // namespace planq::gguf
