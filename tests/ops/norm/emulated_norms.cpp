// The CUDA kernels of the family, on a processor: see tests/support/emulated. PLANQ_ELEMENT is the
// type of the input.
#include "cuda/launch.cuh"
#include "emulated/call.h"
#include "emulated/codes.h"
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

// With codes, if there are words for them.
template <class Fields, norm::Norm (*kNormOf)(const Call&), bool kCentred, int kOutput>
void run(Fields fields, const char* const* words, const double* numbers, std::size_t operands,
         int multiprocessors, const emulated::Given* given) {
  using Codes = norm::CodeKernels<Fields, kNormOf, kCentred, kOutput>;
  if (words) {
    fields.output_dtype = emulated::enumerator<DType>(words[0]);
    fields.quantized = emulated::codes_from(words, numbers);
    return emulated::run(fields, given, operands, multiprocessors, Codes::bind);
  }
  using Floats = norm::FloatKernels<Fields, kNormOf, kCentred>;
  emulated::run(fields, given, operands, multiprocessors, Floats::bind);
}

}  // namespace

extern "C" void rms_norm(std::int64_t rows, std::int64_t length, const int* types,
                         double weight_offset, bool round_before_weight, const char* const* words,
                         const double* numbers, int multiprocessors, const emulated::Given* given) {
  auto fields = fields_of<rms_norm::Fields>(rows, length, types, weight_offset);
  fields.round_before_weight = round_before_weight;
  run<rms_norm::Fields, rms_norm::norm_of, false, rms_norm::kOutput>(
      fields, words, numbers, std::size(rms_norm::kOperands), multiprocessors, given);
}

extern "C" void layer_norm(std::int64_t rows, std::int64_t length, const int* types,
                           double weight_offset, int bias, const char* const* words,
                           const double* numbers, int multiprocessors,
                           const emulated::Given* given) {
  auto fields = fields_of<layer_norm::Fields>(rows, length, types, weight_offset);
  fields.bias_dtype = kTypes[bias];
  run<layer_norm::Fields, layer_norm::norm_of, true, layer_norm::kOutput>(
      fields, words, numbers, std::size(layer_norm::kOperands), multiprocessors, given);
}
