// The launch of the kernels of wgmma_decoding.cuh, which wgmma_codes_sm90a.cu chooses among.
#pragma once

#include "core/bound.h"
#include "core/device.h"
#include "ops/linear/product.h"

namespace planq::linear::decoding {

// Codes in vectors, under statistics in float32 that runs of terms share and that begin anew with
// each column; whole slices.
bool takes(const Product& product);

Status preload(DType values);
// `width`: which of kWidths (wgmma_decoding_choice.h). Answers in `launched` whether the copy
// engine reads the factors; nothing is launched where not.
Status launch(const Product& product, int width, const Device& device, Bound& bound,
              bool& launched);

}  // namespace planq::linear::decoding
