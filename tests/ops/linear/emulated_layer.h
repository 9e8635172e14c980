// A layer whose weights are codes, as tests of emulated kernels describe it: see emulated_codes.cpp
// and emulated_groups.cpp, which include kernels first.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "ops/linear/weight_only/codes.h"

namespace {

using namespace planq;
using namespace planq::linear;

// As test_emulated_codes.py fills it; what is not there is null.
struct Layer {
  std::int64_t m, n, k, row_stride, segment_size, nested_block_size, scale_row, multiprocessors;
  const char *input_dtype, *code_dtype, *weight_dtype, *output_dtype, *bias_dtype, *residual_dtype;
  const char *scale_dtype, *zero_point_dtype;
  const char *nibble_order, *weight_layout, *accumulation, *codebook;
  const void *input, *weight, *absmax, *given_codebook, *nested_absmax, *nested_offset,
      *nested_codebook, *group_scale, *zero_point, *channel_scale, *tensor_scale, *bias, *residual;
  void* output;
};

template <class E>
E named(const char* name) {
  const auto& names = kNames<E>;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) std::abort();
  return static_cast<E>(found - names.begin());
}

inline WeightCodes codes_of(const Layer& layer) {
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
  else if (codes.dtype == DType::Float4E2M1FN)
    codes.codebook = kE2M1Values.data();
  codes.has_blocks = layer.absmax != nullptr;
  codes.scales.stored = {codes.has_blocks ? layer.absmax : layer.group_scale,
                         named<DType>(layer.scale_dtype),
                         layer.nested_block_size,
                         layer.nested_absmax,
                         layer.nested_offset,
                         static_cast<const float*>(layer.nested_codebook)};
  codes.scales.tensor_scale = static_cast<const float*>(layer.tensor_scale);
  codes.zero_point = layer.zero_point;
  codes.zero_point_dtype = named<DType>(layer.zero_point_dtype);
  codes.scales.pitch = codes.zero_point_row = layer.scale_row;
  return codes;
}

inline Gemm gemm_of(const Layer& layer, const WeightCodes& codes) {
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
  if (e.weight_scale) e.scale_dtype = named<DType>(layer.scale_dtype);
  e.weight_step = 1;
  e.bias = layer.bias;
  if (e.bias) e.bias_dtype = named<DType>(layer.bias_dtype);
  e.residual = layer.residual;
  if (e.residual) e.residual_dtype = named<DType>(layer.residual_dtype);
  e.residual_row = layer.n;
  return gemm;
}

}  // namespace
