// Products of floating numbers on any GPU, an output at a time: for what the tensor cores of sm_90
// do not take, and for other GPUs, where it is these cores that are computed.
#include "cuda/launch.cuh"
#include "math/tensor_core.h"
#include "ops/affine/affine.cuh"
#include "ops/linear/float_launch.cuh"

namespace planq::linear {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kMostBlocks = 1 << 20;

template <class T>
struct Row {
  const T* values;
  int smallest;
  std::int64_t step;

  __device__ float operator[](std::int64_t index) const {
    return math::widen(values[index * step]);
  }
  __device__ Row from(std::int64_t index) const { return {values + index * step, smallest, step}; }
};

template <class T>
__device__ Row<T> row_of(const Factor& factor, std::int64_t row) {
  constexpr int kSmallest = std::is_same_v<T, math::Half> ? -14 : -126;
  return {reinterpret_cast<const T*>(factor.data) + row * factor.row_stride, kSmallest,
          factor.term_stride};
}

struct FloatArgs {
  Product product;
  std::int64_t outputs;  // of the whole batch
};

// An output's place, and the product of the batch that it belongs to.
struct OutputPlace {
  Product product;
  std::int64_t row, column;

  __device__ OutputPlace(const FloatArgs& args, std::int64_t index)
      : product(args.product.at(index / (args.product.m * args.product.n))),
        row(index / args.product.n % args.product.m),
        column(index % args.product.n) {}
};

template <class T>
__device__ void store_number(const Product& product, std::int64_t at, float y) {
  const float canonical = math::is_nan(y) ? math::canonical_nan<float>() : y;
  reinterpret_cast<T*>(product.output)[at] = math::narrow<T>(canonical);
}

__device__ void finish_output(const OutputPlace& place, float sum) {
  const Product& product = place.product;
  const Epilogue& e = product.epilogue;
  const float bias = e.bias ? math::load_scale<float>(e.bias, place.column, e.bias_dtype) : 0.0f;
  const float y = with_addends(sum, bias, residual_at<float>(e, place.row, place.column), e);
  const std::int64_t at = place.row * product.output_row + place.column;
  if (product.output_dtype == DType::Float16) return store_number<math::Half>(product, at, y);
  if (product.output_dtype == DType::BFloat16) return store_number<math::Bfloat16>(product, at, y);
  store_number<float>(product, at, y);
}

// Accumulation::TensorSm90, an output a thread.
template <class T>
__global__ void __launch_bounds__(kThreads)
    compute_tensor_sums(const __grid_constant__ FloatArgs args) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
#pragma unroll 1
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < args.outputs;
       i += step) {
    const OutputPlace place(args, i);
    const Product& product = place.product;
    finish_output(place, math::tensor_core_sum<math::TensorCore16>(
                             row_of<T>(product.input, place.row),
                             row_of<T>(product.weight, place.column), product.k));
  }
}

// Accumulation::Lanes, an output a warp: math::lane_sum with a lane for each of its sums.
template <class T>
__device__ float lane_sum(Row<T> a, Row<T> b, std::int64_t terms) {
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
template <class T>
__global__ void __launch_bounds__(kThreads)
    compute_lane_sums(const __grid_constant__ FloatArgs args) {
  constexpr int kWarps = kThreads / cuda::kWarp;
  const std::int64_t step = std::int64_t{gridDim.x} * kWarps;
#pragma unroll 1
  for (std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / cuda::kWarp;
       i < args.outputs; i += step) {
    const OutputPlace place(args, i);
    const Product& product = place.product;
    const float sum = lane_sum(row_of<T>(product.input, place.row),
                               row_of<T>(product.weight, place.column), product.k);
    if (threadIdx.x % cuda::kWarp == 0) finish_output(place, sum);
  }
}

template <class T>
Status launch_type(const FloatArgs& args, Accumulation accumulation, Bound& bound) {
  const bool lanes = accumulation == Accumulation::Lanes;
  const std::int64_t threads = args.outputs * (lanes ? cuda::kWarp : 1);
  const cuda::Grid grid{.blocks = std::min(cuda::ceil_div(threads, kThreads), kMostBlocks),
                        .threads = dim3(kThreads)};
  return cuda::launch(lanes ? compute_lane_sums<T> : compute_tensor_sums<T>, grid, args, bound);
}

}  // namespace

Status preload_floats() {
  PLANQ_TRY(cuda::preload(compute_tensor_sums<math::Half>));
  PLANQ_TRY(cuda::preload(compute_tensor_sums<math::Bfloat16>));
  PLANQ_TRY(cuda::preload(compute_lane_sums<math::Half>));
  return cuda::preload(compute_lane_sums<math::Bfloat16>);
}

Status launch_floats(const Product& product, Accumulation accumulation, Bound& bound) {
  if (product.empty()) return Status::success();
  const FloatArgs args{product, product.m * product.n * product.batch.size()};
  return product.input.dtype == DType::Float16
             ? launch_type<math::Half>(args, accumulation, bound)
             : launch_type<math::Bfloat16>(args, accumulation, bound);
}

}  // namespace planq::linear
