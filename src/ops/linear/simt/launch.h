// Launches of floating gemms, for any GPU and for each engine: simt, sm80, sm90. An Accumulation
// names the order of the sums.
#pragma once

#include "core/bound.h"
#include "core/device.h"
#include "ops/linear/gemm.h"
#include "ops/linear/sm90/bodies.h"
#include "ops/linear/vocabulary.h"

namespace planq::linear {

// SIMT kernels (simt/gemm.cuh) take every gemm on every GPU. A thread or a warp computes one
// output, by the functions that the host calls, too. 16-bit numbers have both orders of sums, 8-bit
// floating codes only Accumulation::TensorSm90.
Status preload_floats();
Status preload_float8s();
Status launch_floats(const Gemm& gemm, Accumulation accumulation, Bound& bound);

// The same for weights that are codes (simt/weight_only.cu), with an input of 16 or 32 bits. Those
// of 16 bits have Accumulation::GroupsSm90, too. In the order of Accumulation::Lanes, few rows of
// input have a kernel of their own (simt/weight_only_few_rows.cuh). `values`: the type that the
// weights are dequantized to.
Status preload_weight_only(DType values);
Status launch_weight_only(const Gemm& gemm, Accumulation accumulation, Bound& bound);

// Dequantizes `rows` rows of a weight from row `first` on: writes 16-bit numbers to `to`, with
// `stride` numbers from a row to the next, a multiple of 8.
Status preload_dequantize(DType values);
Status launch_dequantize(const WeightCodes& codes, std::int64_t first, std::int64_t rows, void* to,
                         std::int64_t stride, Bound& bound);
// The same without the scales: the numbers that Accumulation::GroupsSm90 multiplies.
Status preload_unscaled(DType values);
Status launch_unscaled(const WeightCodes& codes, std::int64_t first, std::int64_t rows, void* to,
                       std::int64_t stride, Bound& bound);

// The tensor cores of any GPU from sm_80 on (sm80/float_tiles.cuh) take every gemm. The sums have
// the steps and slices of Accumulation::TensorSm90, and its bits on sm_90. 8-bit floating codes are
// multiplied as float16. `input`: the type of the input.
inline constexpr std::int64_t kMostSm80Terms = (std::int64_t{1} << 30) - 1;
Status preload_float_sm80(DType input);
Status launch_float_sm80(const Gemm& gemm, const Device& device, Bound& bound);

// The tensor cores of sm_90a, by wgmma, in the order of Accumulation::TensorSm90
// (sm90/float_tiles.cuh, sm90/float_few_rows.cuh). 16-bit numbers without scales may have one
// operand or both transposed; preload_float_transposed() is for these. All others have k innermost
// in both operands. What TMA cannot read goes to sm80/float_few_rows.cuh, launch_float_sm80 or
// launch_floats.
Status preload_float_sm90(DType input, DType weight);
Status preload_float_transposed(DType values, bool input, bool weight);
Status launch_float_sm90(const Gemm& gemm, sm90::Body body, const Device& device, Bound& bound);

// Weights that are codes, on both kinds of tensor cores. They are dequantized to panels in the
// workspace, which the kernels for numbers then multiply (weight_only/panels.cuh).
std::size_t panel_workspace(std::int64_t columns, std::int64_t terms, const Device& device);
Status preload_weight_only_sm80(DType values);
Status launch_weight_only_sm80(const Gemm& gemm, const Call& call, Bound& bound);
Status preload_weight_only_sm90(DType values);
Status launch_weight_only_sm90(const Gemm& gemm, const Call& call, Bound& bound);

// The same in the order of Accumulation::GroupsSm90, of panels without scales, which meet the sums
// (sm80/groups_tiles.cuh). It takes every layer of up to kMostSm80Terms terms, and has the bits of
// that order on sm_90.
Status preload_groups_sm80(DType values);
Status launch_groups_sm80(const Gemm& gemm, const Call& call, Bound& bound);

}  // namespace planq::linear
