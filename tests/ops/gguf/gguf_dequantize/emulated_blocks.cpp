// The CUDA kernels of the operator, on a processor: see tests/support/emulated. PLANQ_ELEMENT is
// given: the type of the output. `table_rows`: 0 without an index.
#include <vector>

#include "call.h"
#include "cuda/launch.cuh"
#include "ops/gguf/gguf_dequantize/cuda.cuh"

using namespace planq;

extern "C" void dequantize(const Shape* shape, int type, int multiprocessors,
                           std::int64_t table_rows, bool wide, const emulated::Given* given) {
  gguf_dequantize::Fields fields;
  fields.shape = *shape;
  fields.type = static_cast<GgufType>(type);
  fields.output_dtype = cuda::kElement;
  fields.table_rows = table_rows;
  if (table_rows > 0) fields.index_dtype = wide ? DType::Int64 : DType::Int32;
  emulated::run(fields, given, 4, multiprocessors, gguf_dequantize::bind);
}
