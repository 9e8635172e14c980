// Gemms of floating numbers on any GPU, without its tensor cores: a thread or a warp computes one
// output at a time. These kernels take every gemm. They are for operands that faster kernels do not
// take, and for GPUs other than sm_90, where they compute in integers what the tensor cores of
// sm_90 would give (math/tensor_core.h).
//
// A kernel is made for a type of operands: a class like OperandsOf below, which reads rows of the
// input and of the weight. The .cu files beside this one choose it: see simt/launch.h.
#pragma once

#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "math/tensor_core.h"
#include "ops/linear/simt/epilogue.cuh"
#include "ops/linear/simt/launch.h"

namespace planq::linear {

inline constexpr int kFloatThreads = 128;
inline constexpr std::int64_t kMostFloatBlocks = 1 << 20;

// --- Rows of numbers, as math/tensor_core.h takes them -------------------------------------------

inline constexpr int kSmallestOfHalf = -14, kSmallestOfBfloat16 = -126;

template <class T>
struct NumberRow {
  static constexpr int smallest =
      std::is_same_v<T, math::Half> ? kSmallestOfHalf : kSmallestOfBfloat16;
  const T* values;
  std::int64_t step;

  __device__ NumberRow(const GemmOperand& operand, std::int64_t row)
      : NumberRow(reinterpret_cast<const T*>(operand.data) + row * operand.row_stride,
                  operand.term_stride) {}
  __device__ NumberRow(const T* values, std::int64_t step) : values(values), step(step) {}

  __device__ float operator[](std::int64_t index) const {
    return math::widen(values[index * step]);
  }
  __device__ NumberRow from(std::int64_t index) const { return {values + index * step, step}; }
};

// A row of 8-bit floating codes. The other operand may have the other format of such codes.
struct Float8Row {
  const std::uint8_t* codes;
  DType dtype;
  int smallest;

  __device__ Float8Row(const GemmOperand& operand, std::int64_t row)
      : codes(operand.data + row * operand.row_stride),
        dtype(operand.dtype),
        smallest(operand.dtype == DType::Float8E4M3FN ? -6 : -14) {}

  __device__ float operator[](std::int64_t index) const {
    return math::float8_value<float>(codes[index], dtype);
  }
  __device__ Float8Row from(std::int64_t index) const {
    Float8Row row = *this;
    row.codes += index;
    return row;
  }
};

// --- Operands, and the arguments of a kernel -----------------------------------------------------

struct FloatArgs {
  Gemm gemm;
  std::int64_t outputs;  // of all gemms of the batch
};

template <class Row, class TensorCore>
struct OperandsOf {
  using Args = FloatArgs;
  using Core = TensorCore;
  static __device__ Row input(const Args&, const Gemm& gemm, std::int64_t row) {
    return {gemm.input, row};
  }
  static __device__ Row weight(const Args&, const Gemm& gemm, std::int64_t row) {
    return {gemm.weight, row};
  }
};
template <class T>
using NumberOperands = OperandsOf<NumberRow<T>, math::TensorCore16>;
using Float8Operands = OperandsOf<Float8Row, math::TensorCore8>;

// --- Outputs -------------------------------------------------------------------------------------

__device__ inline void finish_output(const OutputPlace& place, float sum) {
  const Gemm& gemm = place.gemm;
  const float y = finished(gemm, place.row, place.column, sum, row_scale(gemm, place.row),
                           FloatColumn(gemm, place.column));
  store_output(gemm, place.row, place.column, y);
}

// --- Accumulation::TensorSm90, an output a thread ------------------------------------------------

// Adds a slice of 128 terms to the sum, multiplied by the scales of the slice's blocks. `index`:
// the slice's number.
struct ScaledSlices {
  const float *of_input, *of_weight;

  __device__ ScaledSlices(const Gemm& gemm, std::int64_t row, std::int64_t column)
      : of_input(static_cast<const float*>(gemm.epilogue.input_scale) +
                 row * gemm.epilogue.input_scale_row),
        of_weight(static_cast<const float*>(gemm.epilogue.weight_scale) +
                  column / kBlockColumns * gemm.weight_scale_row) {}

  __device__ float operator()(float sum, float slice, std::int64_t index) const {
    return math::fused(slice, of_input[index] * of_weight[index], sum);
  }
};

template <class GemmOperands>
__device__ float tensor_sum(const typename GemmOperands::Args& args, const OutputPlace& place) {
  using Core = typename GemmOperands::Core;
  const Gemm& gemm = place.gemm;
  const auto input = GemmOperands::input(args, gemm, place.row);
  const auto weight = GemmOperands::weight(args, gemm, place.column);
  if constexpr (std::is_same_v<GemmOperands, Float8Operands>)
    if (gemm.joins_by_scales)
      return math::tensor_core_sum<Core>(input, weight, gemm.k,
                                         ScaledSlices(gemm, place.row, place.column));
  return math::tensor_core_sum<Core>(input, weight, gemm.k);
}

template <class GemmOperands>
__global__ void __launch_bounds__(kFloatThreads)
    compute_tensor_sums(const __grid_constant__ typename GemmOperands::Args args) {
  const std::int64_t step = std::int64_t{gridDim.x} * kFloatThreads;
#pragma unroll 1
  for (std::int64_t i = std::int64_t{blockIdx.x} * kFloatThreads + threadIdx.x; i < args.outputs;
       i += step) {
    const OutputPlace place(args.gemm, i);
    finish_output(place, tensor_sum<GemmOperands>(args, place));
  }
}

// --- Accumulation::Lanes, an output a warp -------------------------------------------------------

// math::lane_sum by a warp: lane l computes what that function calls lane l.
template <class A, class B>
__device__ float lane_sum(A a, B b, std::int64_t terms) {
  static_assert(math::kSumLanes == cuda::kWarp);
  const int lane = threadIdx.x % cuda::kWarp;
  float sum = 0;
  for (std::int64_t first = std::int64_t{lane} * math::kLaneTerms; first < terms;
       first += math::kSumLanes * math::kLaneTerms) {
    const std::int64_t end = min(first + math::kLaneTerms, terms);
    for (std::int64_t k = first; k < end; ++k) sum = math::fused(a[k], b[k], sum);
  }
  for (int half = math::kSumLanes / 2; half > 0; half /= 2)
    sum = sum + __shfl_down_sync(cuda::kAllLanes, sum, half);
  return sum;
}

template <class GemmOperands>
__global__ void __launch_bounds__(kFloatThreads)
    compute_lane_sums(const __grid_constant__ typename GemmOperands::Args args) {
  constexpr int kWarps = kFloatThreads / cuda::kWarp;
  const std::int64_t step = std::int64_t{gridDim.x} * kWarps;
#pragma unroll 1
  for (std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / cuda::kWarp;
       i < args.outputs; i += step) {
    const OutputPlace place(args.gemm, i);
    const Gemm& gemm = place.gemm;
    const float sum = lane_sum(GemmOperands::input(args, gemm, place.row),
                               GemmOperands::weight(args, gemm, place.column), gemm.k);
    if (threadIdx.x % cuda::kWarp == 0) finish_output(place, sum);
  }
}

// --- Launches ------------------------------------------------------------------------------------

// Whether a lane may read four terms at once, as 8 bytes: the 16-bit numbers of an operand lie side
// by side, and every row begins at a multiple of 8 bytes. `which`: the operand, for the batch.
inline bool has_fours(const Gemm& gemm, const GemmOperand& operand, Moved which) {
  bool batches = true;
  for (int axis = 0; axis < gemm.batch.rank; ++axis)
    batches &= gemm.batch.axes[axis].stride[which] % 4 == 0;
  return operand.term_stride == 1 && operand.row_stride % 4 == 0 && batches &&
         cuda::aligned_to(operand.data, 8);
}

// `threads`: how many compute one output.
template <class Args>
Status launch_outputs(void (*kernel)(Args), const Args& args, int threads, Bound& bound) {
  const cuda::Grid grid{
      .blocks = std::min(cuda::ceil_div(args.outputs * threads, kFloatThreads), kMostFloatBlocks),
      .threads = dim3(kFloatThreads)};
  return cuda::launch(kernel, grid, args, bound);
}
template <class GemmOperands>
Status launch_tensor_sums(const typename GemmOperands::Args& args, Bound& bound) {
  return launch_outputs(compute_tensor_sums<GemmOperands>, args, 1, bound);
}
template <class GemmOperands>
Status launch_lane_sums(const typename GemmOperands::Args& args, Bound& bound) {
  return launch_outputs(compute_lane_sums<GemmOperands>, args, cuda::kWarp, bound);
}

inline FloatArgs float_args(const Gemm& gemm) {
  return {gemm, gemm.m * gemm.n * gemm.batch.size()};
}

}  // namespace planq::linear
