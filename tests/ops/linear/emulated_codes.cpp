// The CUDA kernels of layers whose weights are codes, on a processor: see tests/support/emulated.
#include "cuda/launch.cuh"
#include "ops/linear/gemm.cpp"
#include "ops/linear/simt/float.cu"
#include "ops/linear/simt/weight_only.cu"
#include "ops/linear/sm80/float.cu"
#include "ops/linear/sm80/float_few_rows.cuh"
#include "ops/linear/sm80/weight_only_few_rows.cuh"

namespace {

using namespace planq;
using namespace planq::linear;

// As test_emulated_codes.py fills it; what is not there is null.
struct Layer {
  std::int64_t m, n, k, row_stride, segment_size, nested_block_size, scale_row, multiprocessors;
  const char *input_dtype, *code_dtype, *weight_dtype, *output_dtype, *bias_dtype, *residual_dtype;
  const char *nibble_order, *weight_layout, *accumulation, *codebook;
  const void *input, *weight, *absmax, *given_codebook, *nested_absmax, *nested_offset,
      *nested_codebook, *group_scale, *zero_point, *channel_scale, *bias, *residual;
  void* output;
};

template <class E>
E named(const char* name) {
  const auto& names = kNames<E>;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) std::abort();
  return static_cast<E>(found - names.begin());
}

WeightCodes codes_of(const Layer& layer) {
  WeightCodes codes;
  codes.data = static_cast<const std::uint8_t*>(layer.weight);
  codes.dtype = named<DType>(layer.code_dtype);
  codes.values = named<DType>(layer.weight_dtype);
  codes.nibble_order = named<NibbleOrder>(layer.nibble_order);
  codes.layout = named<WeightLayout>(layer.weight_layout);
  codes.row_stride = layer.row_stride;
  codes.rows = layer.n;
  codes.terms = layer.k;
  codes.segment_size = layer.segment_size;
  codes.codebook_is_operand = layer.given_codebook != nullptr;
  if (codes.codebook_is_operand)
    codes.codebook = static_cast<const float*>(layer.given_codebook);
  else if (layer.codebook)
    codes.codebook = math::nibble_table(named<Codebook>(layer.codebook)).value;
  codes.statistics = {
      layer.absmax,        DType::Float32,      layer.nested_block_size,
      layer.nested_absmax, layer.nested_offset, static_cast<const float*>(layer.nested_codebook)};
  codes.scale = static_cast<const float*>(layer.group_scale);
  codes.zero_point = static_cast<const std::int32_t*>(layer.zero_point);
  codes.scale_row = codes.zero_point_row = layer.scale_row;
  return codes;
}

Gemm gemm_of(const Layer& layer, const WeightCodes& codes) {
  Gemm gemm;
  gemm.m = layer.m;
  gemm.n = layer.n;
  gemm.k = layer.k;
  gemm.input = {static_cast<const std::uint8_t*>(layer.input), layer.k, 1,
                named<DType>(layer.input_dtype)};
  gemm.weight = {.dtype = codes.values, .codes = &codes};
  gemm.output = static_cast<std::uint8_t*>(layer.output);
  gemm.output_row = layer.n;
  gemm.output_dtype = named<DType>(layer.output_dtype);
  Epilogue& e = gemm.epilogue;
  e.weight_scale = layer.channel_scale;
  e.weight_step = 1;
  e.bias = layer.bias;
  if (e.bias) e.bias_dtype = named<DType>(layer.bias_dtype);
  e.residual = layer.residual;
  if (e.residual) e.residual_dtype = named<DType>(layer.residual_dtype);
  e.residual_row = layer.n;
  return gemm;
}

}  // namespace

// Whether codes were read by vectors. `on_tensor_cores`: what sm_90 has for few rows, where it
// takes the layer.
extern "C" bool run_layer(const Layer* layer, bool on_tensor_cores) {
  const WeightCodes codes = codes_of(*layer);
  const Gemm gemm = gemm_of(*layer, codes);
  const auto accumulation = named<Accumulation>(layer->accumulation);
  const bool lanes = accumulation == Accumulation::Lanes && lanes::takes(gemm);
  const bool slices = on_tensor_cores && accumulation == Accumulation::TensorSm90 &&
                      !gemm.empty() && weight_only_few_rows::takes(gemm);
  Bound bound;
  Device device;
  device.multiprocessors = static_cast<std::int32_t>(layer->multiprocessors);
  const Status status = slices ? weight_only_few_rows::launch(gemm, device, bound)
                               : launch_weight_only(gemm, accumulation, bound);
  if (!status.ok()) std::abort();
  return lanes || slices;
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
