// moe_unpermute on CUDA: a thread has some neighbouring columns of a token, a vector of the input's
// where all rows are aligned, and adds the rows of one rank after another. The file that includes
// this names the type of the input: see cuda/element.cuh.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "core/sku.h"
#include "cuda/divider.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/neighbours.cuh"
#include "cuda/row_share.cuh"
#include "ops/routing/moe_unpermute/desc.h"

namespace planq::moe_unpermute {
namespace {

using cuda::Element;
using cuda::Neighbours;
using std::int64_t;

constexpr int kColumns = cuda::kVectorBytes / static_cast<int>(sizeof(Element));
// Ranks whose rows are loaded together.
constexpr int kBatch = 4;
constexpr int64_t kNowhere = std::numeric_limits<int64_t>::min();

template <class U>
struct SumArgs {
  cuda::RowShare share;  // of the tokens
  const Element* input;
  const std::int32_t* destination;
  const float* weight;
  U* output;
  // From row to row: of the input, within a token and from token to token.
  int64_t input_stride, input_token_stride;
  int64_t destination_stride, weight_stride, output_stride;
  cuda::Divider top_k;
  int64_t pairs;
  int ranks;

  // Where a pair's row is, which is before the first where strides are negative; kNowhere: it has
  // none.
  __device__ __forceinline__ int64_t row_offset(int64_t token, int rank) const {
    const std::int32_t row = destination[token * destination_stride + rank];
    if (row < 0 || row >= pairs) return kNowhere;
    const auto own = static_cast<std::uint32_t>(row), first = top_k.quotient(own);
    return first * input_token_stride + (own - first * top_k.divisor) * input_stride;
  }
};

template <class U, int kCount>
__device__ __forceinline__ void add_ranks(const SumArgs<U>& args, int64_t token, int64_t column,
                                          int first, float (&sums)[kCount]) {
  Neighbours<Element, kCount> rows[kBatch];
  bool takes_part[kBatch];
#pragma unroll
  for (int b = 0; b < kBatch; ++b) {
    const int64_t offset = first + b < args.ranks ? args.row_offset(token, first + b) : kNowhere;
    takes_part[b] = offset != kNowhere;
    if (takes_part[b]) rows[b].load(args.input + offset + column);
  }
#pragma unroll
  for (int b = 0; b < kBatch; ++b) {
    if (!takes_part[b]) continue;
    const float weight = args.weight[token * args.weight_stride + first + b];
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      sums[i] = __fmaf_rn(math::widen(rows[b].each[i]), weight, sums[i]);
  }
}

template <class U, int kCount>
__global__ void __launch_bounds__(cuda::RowShare::kThreads)
    sum_rows(const __grid_constant__ SumArgs<U> args) {
  const int64_t token = args.share.first_row() + args.share.own_row();
  if (token >= args.share.rows) return;
#pragma unroll 1
  for (int64_t unit = args.share.first_unit(); unit < args.share.units; unit += args.share.step()) {
    const int64_t column = unit * kCount;
    float sums[kCount] = {};
#pragma unroll 1
    for (int first = 0; first < args.ranks; first += kBatch)
      add_ranks(args, token, column, first, sums);
    Neighbours<U, kCount> rounded;
#pragma unroll
    for (int i = 0; i < kCount; ++i) rounded.each[i] = math::narrow<U>(sums[i]);
    rounded.store(args.output + token * args.output_stride + column);
  }
}

template <class U, int kCount>
Status launch_sums(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& given = call.operands;
  const cuda::RowShare share(f.tokens(), f.width() / kCount, 1, call.device);
  const SumArgs<U> args = {
      share,
      static_cast<const Element*>(given[kInput].data),
      static_cast<const std::int32_t*>(given[kDestination].data),
      static_cast<const float*>(given[kWeight].data),
      static_cast<U*>(given[kOutput].data),
      given[kInput].strides[1],
      given[kInput].strides[0],
      given[kDestination].strides[0],
      given[kWeight].strides[0],
      given[kOutput].strides[0],
      cuda::Divider(static_cast<std::uint32_t>(std::max<int64_t>(f.top_k(), 1))),
      f.pairs(),
      static_cast<int>(f.top_k())};
  return cuda::launch(sum_rows<U, kCount>, share.grid(), args, bound);
}

template <DType kOutputType>
Status prepare(const Descriptor&, const Device&, State&) {
  using U = math::Stored<kOutputType>;
  PLANQ_TRY((cuda::preload(sum_rows<U, kColumns>)));
  return cuda::preload(sum_rows<U, 1>);
}

template <DType kOutputType>
Status bind(const Call& call, Bound& bound) {
  using U = math::Stored<kOutputType>;
  const Fields& f = call.fields<Fields>();
  const OperandView &input = call.operands[kInput], &output = call.operands[kOutput];
  constexpr int kStored = std::min<int>(kColumns * sizeof(U), cuda::kVectorBytes);
  constexpr int64_t kElementBytes = sizeof(Element), kResultBytes = sizeof(U);
  const bool whole =
      cuda::has_whole_words(input, f.width() * kElementBytes, kElementBytes, cuda::kVectorBytes) &&
      cuda::has_whole_words(output, f.width() * kResultBytes, kResultBytes, kStored);
  return whole ? launch_sums<U, kColumns>(call, bound) : launch_sums<U, 1>(call, bound);
}

template <DType kOutputType>
constexpr Kernel make_kernel() {
  return {.op = "moe_unpermute",
          .body = "rows",
          .dtypes = kDTypes<cuda::kElement, kOutputType>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80, kLastArch},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<cuda::kElement, kOutputType>,
          .workspace = no_workspace,
          .prepare = prepare<kOutputType>,
          .bind = bind<kOutputType>};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>()};

}  // namespace
}  // namespace planq::moe_unpermute
