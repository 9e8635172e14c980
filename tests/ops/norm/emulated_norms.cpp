// The CUDA kernels of the family, on a processor: see tests/support/emulated. PLANQ_ELEMENT is the
// type of the input.
#include "cuda/launch.cuh"
#include "emulated/call.h"
#include "ops/norm/layer_norm/cuda.cuh"
#include "ops/norm/rms_norm/cuda.cuh"

namespace {

using namespace planq;

// Types by number: 0 is none.
constexpr DType kTypes[] = {DType::Unset, DType::Float16, DType::BFloat16, DType::Float32};

template <class Fields>
Fields fields_of(std::int64_t rows, std::int64_t length, const int* types, double weight_offset) {
  Fields fields;
  fields.shape = {2, {rows, length}};
  fields.input_dtype = cuda::kElement;
  fields.weight_dtype = kTypes[types[0]];
  fields.output_dtype = kTypes[types[1]];
  fields.residual_dtype = kTypes[types[2]];
  fields.weight_offset = weight_offset;
  return fields;
}

}  // namespace

extern "C" void rms_norm(std::int64_t rows, std::int64_t length, const int* types,
                         double weight_offset, bool round_before_weight, int multiprocessors,
                         const emulated::Given* given) {
  auto fields = fields_of<rms_norm::Fields>(rows, length, types, weight_offset);
  fields.round_before_weight = round_before_weight;
  emulated::run(fields, given, std::size(rms_norm::kOperands), multiprocessors, rms_norm::bind);
}

extern "C" void layer_norm(std::int64_t rows, std::int64_t length, const int* types,
                           double weight_offset, int bias, int multiprocessors,
                           const emulated::Given* given) {
  auto fields = fields_of<layer_norm::Fields>(rows, length, types, weight_offset);
  fields.bias_dtype = kTypes[bias];
  emulated::run(fields, given, std::size(layer_norm::kOperands), multiprocessors, layer_norm::bind);
}
