// The CUDA kernels of sm80/groups_tiles.cuh, on a processor: see tests/support/emulated. The tensor
// cores there have the arithmetic of sm_90's.
#include "cuda/launch.cuh"
#include "ops/linear/gemm.cpp"
#include "ops/linear/simt/weight_only.cu"
#include "ops/linear/sm80/float.cu"
#include "ops/linear/sm80/groups.cu"
#include "ops/linear/sm80/groups_bf16.cu"
#include "ops/linear/sm80/groups_f16.cu"

#include "emulated_layer.h"

namespace {

// Given strides of the input, in numbers, and how many layers of one weight there are.
struct Batch {
  std::int64_t input_row, input_batch, count;
};

Device device_of(const Layer& layer) {
  Device device;
  device.multiprocessors = static_cast<std::int32_t>(layer.multiprocessors);
  return device;
}

}  // namespace

// `workspace`: as many bytes as the layer's panels need.
extern "C" void run_groups(const Layer* layer, const Batch* batch, void* workspace) {
  const WeightCodes codes = codes_of(*layer);
  Gemm gemm = gemm_of(*layer, codes);
  gemm.input.row_stride = batch->input_row;
  AxisOf<kMovedOperands> step;
  step.extent = batch->count;
  step.stride[kMovedInput] = batch->input_batch;
  step.stride[kMovedOutput] = step.stride[kMovedResidual] = layer->m * layer->n;
  gemm.batch.append(step);
  const Device device = device_of(*layer);
  const std::size_t bytes = panel_workspace(layer->n, layer->k, device);
  const Descriptor none;
  const State state{};
  const Call call{none, device, state, {}, {static_cast<std::byte*>(workspace), bytes}};
  Bound bound;
  if (!launch_groups_sm80(gemm, call, bound).ok()) std::abort();
}
extern "C" std::int64_t groups_bytes(const Layer* layer) {
  return static_cast<std::int64_t>(panel_workspace(layer->n, layer->k, device_of(*layer)));
}
