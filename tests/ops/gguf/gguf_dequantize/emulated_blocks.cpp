// The CUDA kernels of the operator, on a processor: see tests/support/emulated.
#include <vector>

#include "cuda/launch.cuh"
#define PLANQ_ELEMENT BFloat16
#include "call.h"
#include "ops/gguf/gguf_dequantize/cuda.cuh"

using namespace planq;

extern "C" void dequantize(const Shape* shape, int type, int multiprocessors,
                           const emulated::Given* given) {
  gguf_dequantize::Fields fields;
  fields.shape = *shape;
  fields.type = static_cast<GgufType>(type);
  fields.output_dtype = DType::BFloat16;
  emulated::run(fields, given, 2, multiprocessors, gguf_dequantize::bind);
}
