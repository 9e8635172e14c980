// Products on the host.
#pragma once

#include "ops/linear/product.h"

namespace planq::host {

// Computes a product, its epilogue included.
void multiply(const linear::Product& product, int threads);

}  // namespace planq::host
