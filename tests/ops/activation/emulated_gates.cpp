// The CUDA kernels of the family, on a processor: see tests/support/emulated. PLANQ_ELEMENT is the
// type of the input.
#include "call.h"
#include "codes.h"
#include "cuda/launch.cuh"
#include "ops/activation/activation/cuda.cuh"

namespace {

using namespace planq;

template <DType kOutputType>
void run(activation::Fields fields, int multiprocessors, const emulated::Given* given) {
  fields.output_dtype = kOutputType;
  emulated::run(fields, given, 3, multiprocessors, activation::bind<kOutputType>);
}

}  // namespace

extern "C" void run_activation(const Shape* shape, int function, bool gated, int layout,
                               int output_type, int multiprocessors, const emulated::Given* given) {
  activation::Fields fields;
  fields.shape = *shape;
  fields.function = static_cast<ActivationFunction>(function);
  fields.gated = gated;
  fields.layout = static_cast<GateLayout>(layout);
  fields.input_dtype = cuda::kElement;
  if (output_type == 0) run<DType::Float16>(fields, multiprocessors, given);
  if (output_type == 1) run<DType::BFloat16>(fields, multiprocessors, given);
  if (output_type == 2) run<DType::Float32>(fields, multiprocessors, given);
}

// With codes; there are few rows only where more multiprocessors are: a row has one block then, as
// with several vectors for each thread.
extern "C" void run_codes(const Shape* shape, int function, bool gated, int layout,
                          const char* const* words, const double* numbers, int multiprocessors,
                          const emulated::Given* given) {
  activation::Fields fields;
  fields.shape = *shape;
  fields.function = static_cast<ActivationFunction>(function);
  fields.gated = gated;
  fields.layout = static_cast<GateLayout>(layout);
  fields.input_dtype = cuda::kElement;
  fields.output_dtype = emulated::enumerator<DType>(words[0]);
  fields.quantized = emulated::codes_from(words, numbers);
  emulated::run(fields, given, std::size(activation::kOperands), multiprocessors,
                activation::CodeKernels::bind);
}
