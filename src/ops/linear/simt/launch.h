// Launches of products of floating numbers, whose sums have the order that an Accumulation names.
#pragma once

#include "core/bound.h"
#include "core/device.h"
#include "ops/linear/gemm.h"
#include "ops/linear/vocabulary.h"

namespace planq::linear {

// Any product on any GPU (simt/gemm.cuh): one output a thread, or a warp, by the functions that
// the host has too. Numbers of 16 bits in both orders, 8-bit floating codes in that of the tensor
// cores.
Status preload_floats();
Status preload_float8s();
Status launch_floats(const Gemm& gemm, Accumulation accumulation, Bound& bound);

// The same with weights that are codes (simt/weight_only.cu), and an input of 16 or 32 bits. A few
// rows of input have a kernel of their own, by lanes. `values`: the type of the weights' numbers.
Status preload_weight_only(DType values);
Status launch_weight_only(const Gemm& gemm, Accumulation accumulation, Bound& bound);

// Writes what rows of such weights stand for, numbers of 16 bits, to rows of memory that are
// `stride` numbers apart: a multiple of 8, as is the number of terms.
Status preload_dequantize(DType values);
Status launch_dequantize(const WeightCodes& codes, std::int64_t first, std::int64_t rows, void* to,
                         std::int64_t stride, Bound& bound);

// Any product on the tensor cores of any GPU (sm80/float_tiles.cuh), in the steps and slices of
// Accumulation::TensorSm90, which give its bits on sm_90; 8-bit floating codes are multiplied as
// float16. `input`: its type.
inline constexpr std::int64_t kMostSm80Terms = (std::int64_t{1} << 30) - 1;
Status preload_float_sm80(DType input);
Status launch_float_sm80(const Gemm& gemm, const Device& device, Bound& bound);

// On sm_90a (sm90/float_tiles.cuh): Accumulation::TensorSm90. Numbers of 16 bits without scales may
// have a side or both transposed, of which preload_float_transposed() is told; of all others k is
// innermost on both sides. What the copy engine cannot read goes to launch_float_sm80 or
// launch_floats.
Status preload_float_sm90(DType input, DType weight);
Status preload_float_transposed(DType values, bool input, bool weight);
Status launch_float_sm90(const Gemm& gemm, const Device& device, Bound& bound);

// Both with weights that are codes (weight_only/panels.cuh): some of their rows after another are
// written to the workspace, and multiplied.
std::size_t panel_workspace(std::int64_t columns, std::int64_t terms, const Device& device);
Status preload_weight_only_sm80(DType values);
Status launch_weight_only_sm80(const Gemm& gemm, const Call& call, Bound& bound);
Status preload_weight_only_sm90(DType values);
Status launch_weight_only_sm90(const Gemm& gemm, const Call& call, Bound& bound);

}  // namespace planq::linear
