// Gathers what a gemm reads for outliers beside its codes: the weight's codes at the outlier
// columns, a row for each place of the list, and the outlier values in the compute type. The kernel
// of the gemm may begin while this one runs.
#include <algorithm>
#include <cstdint>

#include "cuda/launch.cuh"
#include "ops/linear/linear_llm_int8/launch.h"

namespace planq::linear_llm_int8 {
namespace {

constexpr int kGatherThreads = 128;
// Places of the list that a thread loads at a time, for one row of the weight.
constexpr int kPlaces = 8;
// The most blocks for places, and for rows of values.
constexpr int64_t kMostAcross = 16, kMostRows = 1 << 16;

struct GatherArgs {
  linear::GemmOperand weight;
  linear::Outliers outliers;
  const std::int32_t* index;
  const void* given;  // outlier values, as the operand has them
  DType given_dtype;
  IndexSpace rows;  // of the values
  int64_t columns, terms, row_count;
  std::uint32_t down,
      across;  // blocks that gather codes: along the rows of the weight, along the places
};

// A thread gathers one row of the weight. Rows beyond the last are padding, which is 0.
__device__ __forceinline__ void gather_codes(const GatherArgs& args, std::uint32_t block) {
  const std::uint32_t across = block / args.down;
  const int64_t row = int64_t{block - across * args.down} * kGatherThreads + threadIdx.x;
  if (row >= args.outliers.pitch) return;
  const int64_t count = args.outliers.listed();
  auto* to = const_cast<std::int8_t*>(args.outliers.codes) + row;
#pragma unroll 1
  for (int64_t first = int64_t{across} * kPlaces; first < count;
       first += int64_t{args.across} * kPlaces) {
    std::int8_t codes[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      codes[i] = 0;
      if (first + i < count && row < args.columns)
        codes[i] = listed_code(args.weight, row, args.index[first + i], args.terms);
    }
#pragma unroll
    for (int i = 0; i < kPlaces; ++i)
      if (first + i < count) to[(first + i) * args.outliers.pitch] = codes[i];
  }
}

template <class C>
__device__ __forceinline__ void gather_values(const GatherArgs& args, int64_t first, int64_t step) {
  const int64_t count = args.outliers.listed();
#pragma unroll 1
  for (int64_t row = first; row < args.row_count; row += step) {
    const Offsets at = args.rows.offsets(row);
    C* to = static_cast<C*>(const_cast<void*>(args.outliers.values)) + at.at[kHeld];
    for (int64_t j = threadIdx.x; j < count; j += kGatherThreads)
      to[j] = math::load_scale<C>(args.given, at.at[kGiven] + j, args.given_dtype);
  }
}

template <class C>
__global__ void __launch_bounds__(kGatherThreads)
    gather_outliers(const __grid_constant__ GatherArgs args) {
  cuda::let_dependents_start();
  const std::uint32_t codes = args.down * args.across;
  if (blockIdx.x < codes) return gather_codes(args, blockIdx.x);
  gather_values<C>(args, blockIdx.x - codes, gridDim.x - codes);
}

}  // namespace

Status preload_gather() {
  PLANQ_TRY(cuda::preload(gather_outliers<float>));
  return cuda::preload(gather_outliers<double>);
}

namespace {

// `rows`: of the outlier values that are gathered, too.
Status launch(const Call& call, const Room& room, const linear::Gemm& gemm, int64_t rows,
              Bound& bound) {
  const Fields& f = call.fields<Fields>();
  if (gemm.empty() || f.capacity == 0) return Status::success();
  GatherArgs args;
  args.weight = gemm.weight;
  args.outliers = gemm.epilogue.outliers;
  args.index = args.outliers.index;
  args.given = call.operands[kOutlier].data;
  args.given_dtype = f.outlier_dtype;
  args.rows = value_rows(f, call.operands, room);
  args.columns = gemm.n;
  args.terms = gemm.k;
  args.row_count = rows;
  args.down = static_cast<std::uint32_t>(cuda::ceil_div(room.code_pitch, kGatherThreads));
  args.across =
      static_cast<std::uint32_t>(std::min(cuda::ceil_div(f.capacity, kPlaces), kMostAcross));
  cuda::Grid grid;
  grid.threads = dim3(kGatherThreads);
  grid.blocks = int64_t{args.down} * args.across + std::min(args.row_count, kMostRows);
  return f.compute() == DType::Float64 ? cuda::launch(gather_outliers<double>, grid, args, bound)
                                       : cuda::launch(gather_outliers<float>, grid, args, bound);
}

}  // namespace

Status launch_gather(const Call& call, const Room& room, const linear::Gemm& gemm, Bound& bound) {
  return launch(call, room, gemm, call.fields<Fields>().rows(), bound);
}

Status launch_gather_codes(const Call& call, linear::Gemm& gemm, Bound& bound) {
  Scratch scratch(call.workspace);
  const Room room(call.fields<Fields>(), scratch);
  set_codes(gemm, room);
  return launch(call, room, gemm, 0, bound);
}

}  // namespace planq::linear_llm_int8
