// Vectorwise quantization on the host: loops over a chunk of elements, compiled for every
// instruction set by vectorwise_host.cpp. What chunks are, affine/affine_host.h says.
#pragma once

#include "ops/affine/affine_host.h"
#include "ops/outlier/vectorwise.h"

namespace planq::host {

template <class C>
struct VectorwiseLoops {
  // value -> byte, by the scale and the zero point of each element.
  void (*quantize)(VectorwiseForm form, Chunk<C>& s, std::int64_t count);
  // code -> value.
  void (*dequantize)(VectorwiseForm form, Chunk<C>& s, std::int64_t count);
};

// Loops of the widest instruction set.
template <class C>
const VectorwiseLoops<C>& vectorwise_loops();

}  // namespace planq::host
