// Launches of products of floating numbers, whose sums have the order that an Accumulation names.
#pragma once

#include "core/bound.h"
#include "core/device.h"
#include "ops/linear/product.h"

namespace planq::linear {

// Any product on any GPU (float_product.cu): one output a thread, or a warp, by the functions that
// the host has too. Both orders; the input is float16 or bfloat16.
Status preload_floats();
Status launch_floats(const Product& product, Accumulation accumulation, Bound& bound);

// On sm_90a (wgmma_float.cuh): Accumulation::TensorSm90, k innermost on both sides. What the copy
// engine cannot read goes to launch_floats.
Status preload_float_wgmma();
Status launch_float_wgmma(const Product& product, const Device& device, Bound& bound);

}  // namespace planq::linear
