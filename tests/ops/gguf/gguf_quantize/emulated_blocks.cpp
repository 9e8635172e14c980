// The CUDA kernels of the operator, on a processor: see tests/support/emulated.
#include <vector>

#include "cuda/launch.cuh"
#define PLANQ_ELEMENT BFloat16
#include "call.h"
#include "ops/gguf/gguf_quantize/cuda.cuh"

using namespace planq;

extern "C" void quantize(const Shape* shape, int type, const emulated::Given* given) {
  gguf_quantize::Fields fields;
  fields.shape = *shape;
  fields.type = static_cast<GgufType>(type);
  fields.input_dtype = DType::BFloat16;
  emulated::run(fields, given, 2, 1, gguf_quantize::bind);
}
