// The CUDA kernels of sm80/float_tiles.cuh, on a processor: see tests/support/emulated.
#include "cuda/launch.cuh"
#include "ops/linear/sm80/float.cu"

// As test_emulated_mma.py fills it: strides in elements, and null for what is not there.
struct Given {
  std::int64_t m, n, k, batch, multiprocessors;
  std::int64_t input_batch, input_row, input_term, weight_batch, weight_row, weight_term;
  std::int64_t output_batch, output_row, scale_row, weight_scale_row;
  const char *input_dtype, *weight_dtype, *output_dtype;
  const void *input, *weight, *bias, *residual, *input_scale, *weight_scale;
  void* output;
};

namespace {

using namespace planq;
using namespace planq::linear;

DType dtype_named(const char* name) {
  const auto& names = kNames<DType>;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) std::abort();
  return static_cast<DType>(found - names.begin());
}

Gemm gemm_of(const Given& given) {
  Gemm gemm;
  gemm.m = given.m;
  gemm.n = given.n;
  gemm.k = given.k;
  gemm.input = {static_cast<const std::uint8_t*>(given.input), given.input_row, given.input_term,
                dtype_named(given.input_dtype)};
  gemm.weight = {static_cast<const std::uint8_t*>(given.weight), given.weight_row,
                 given.weight_term, dtype_named(given.weight_dtype)};
  gemm.output = static_cast<std::uint8_t*>(given.output);
  gemm.output_row = given.output_row;
  gemm.output_dtype = dtype_named(given.output_dtype);
  gemm.joins_by_scales = given.input_scale != nullptr;
  gemm.weight_scale_row = given.weight_scale_row;
  Epilogue& e = gemm.epilogue;
  e.input_scale = given.input_scale;
  e.input_scale_row = given.scale_row;
  e.weight_scale = given.weight_scale;
  e.bias = given.bias;
  e.residual = given.residual;
  e.residual_row = given.n;
  AxisOf<kMovedOperands> step;
  step.extent = given.batch;
  step.stride[kMovedInput] = given.input_batch;
  step.stride[kMovedWeight] = given.weight_batch;
  step.stride[kMovedOutput] = given.output_batch;
  step.stride[kMovedResidual] = given.m * given.n;
  gemm.batch.append(step);
  return gemm;
}

}  // namespace

extern "C" void run_product(const Given* given) {
  Device device;
  device.multiprocessors = static_cast<std::int32_t>(given->multiprocessors);
  Bound bound;
  if (!launch_float_sm80(gemm_of(*given), device, bound).ok()) std::abort();
}
