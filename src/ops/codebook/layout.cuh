// Where elements and codes of the codebook operators lie.
#pragma once

#include "cuda/element_places.cuh"
#include "cuda/key_range.cuh"
#include "ops/codebook/codebook.h"

namespace planq::cuda {

// Bytes of the codes of one vector of elements.
template <class In, bool kNibble>
inline constexpr int kCodeBytes = kPerVector<In> / (kNibble ? 2 : 1);

}  // namespace planq::cuda
