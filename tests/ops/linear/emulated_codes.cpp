// The CUDA kernels of layers whose weights are codes, on a processor: see tests/support/emulated.
#include "cuda/launch.cuh"
#include "ops/linear/gemm.cpp"
#include "ops/linear/simt/float.cu"
#include "ops/linear/simt/weight_only.cu"
#include "ops/linear/sm80/float.cu"
#include "ops/linear/sm80/float_few_rows.cuh"

#include "emulated_layer.h"

// Whether codes were read by vectors.
extern "C" bool run_layer(const Layer* layer) {
  const WeightCodes codes = codes_of(*layer);
  const Gemm gemm = gemm_of(*layer, codes);
  const auto accumulation = named<Accumulation>(layer->accumulation);
  const bool lanes = accumulation == Accumulation::Lanes && lanes::takes(gemm);
  Bound bound;
  if (!launch_weight_only(gemm, accumulation, bound).ok()) std::abort();
  return lanes;
}

// The same on the tensor cores of any GPU, which have the arithmetic of sm_90's here. `workspace`:
// as many bytes as panels of these weights need where there is one multiprocessor.
extern "C" void run_panels(const Layer* layer, void* workspace) {
  const WeightCodes codes = codes_of(*layer);
  Device device;
  device.multiprocessors = 1;
  const std::size_t bytes = panel_workspace(layer->n, layer->k, device);
  const Descriptor none;
  const State state{};
  const Call call{none, device, state, {}, {static_cast<std::byte*>(workspace), bytes}};
  Bound bound;
  if (!launch_weight_only_sm80(gemm_of(*layer, codes), call, bound).ok()) std::abort();
}
extern "C" std::int64_t panel_bytes(std::int64_t n, std::int64_t k) {
  Device device;
  device.multiprocessors = 1;
  return static_cast<std::int64_t>(panel_workspace(n, k, device));
}

// A gemm of numbers by the kernels for few rows on sm_90. Returns false if they do not take it.
extern "C" bool run_numbers(const Layer* layer) {
  WeightCodes none;
  Gemm gemm = gemm_of(*layer, none);
  gemm.weight = {static_cast<const std::uint8_t*>(layer->weight), layer->row_stride, 1,
                 named<DType>(layer->weight_dtype)};
  Bound bound;
  return float_few_rows::takes(gemm) && float_few_rows::launch(gemm, bound).ok();
}

// The numbers of all rows, in memory.
extern "C" void write_weight(const Layer* layer) {
  const WeightCodes codes = codes_of(*layer);
  Bound bound;
  if (!launch_dequantize(codes, 0, layer->n, layer->output, layer->k, bound).ok()) std::abort();
}
