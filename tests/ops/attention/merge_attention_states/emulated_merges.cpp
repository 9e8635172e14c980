// The CUDA kernels of merge_attention_states, on a processor: see tests/support/emulated.
// PLANQ_ELEMENT is the type of the outputs.
#include <vector>

#include "call.h"
#include "cuda/launch.cuh"
#include "ops/attention/merge_attention_states/cuda.cuh"

using namespace planq;

extern "C" void merge(const Shape* shape, int multiprocessors, const emulated::Given* given) {
  merge_attention_states::Fields fields;
  fields.shape = *shape;
  fields.dtype = cuda::kElement;
  emulated::run(fields, given, 6, multiprocessors, merge_attention_states::bind);
}
