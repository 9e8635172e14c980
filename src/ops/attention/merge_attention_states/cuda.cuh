// merge_attention_states on CUDA: a thread has some neighbouring columns of a row, a vector where
// all rows are aligned. The file that includes this names the type of the outputs: see
// cuda/element.cuh.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/sku.h"
#include "cuda/divider.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/neighbours.cuh"
#include "ops/attention/merge_attention_states/desc.h"

namespace planq::merge_attention_states {
namespace {

using cuda::Element;
using std::int64_t;

constexpr int kThreads = 128;
constexpr int kColumns = cuda::kVectorBytes / static_cast<int>(sizeof(Element));

struct MergeArgs {
  Heads<const Element> one, other;
  Heads<const float> one_lse, other_lse;
  Heads<Element> output;
  Heads<float> lse;
  cuda::WideDivider units, heads;  // units of a row; heads of a token
  int64_t columns, count;          // count: of units
  int64_t threads;                 // of all blocks
};

// A row without columns has a unit, too: it has a logarithm.
template <int kCount>
__global__ void __launch_bounds__(kThreads) merge_units(const __grid_constant__ MergeArgs args) {
  int64_t own = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
#pragma unroll 1
  for (; own < args.count; own += args.threads) {
    const int64_t row = args.units.quotient(own);
    const int64_t column = (own - row * args.units.divisor()) * kCount;
    const int64_t token = args.heads.quotient(row), head = row - token * args.heads.divisor();
    const math::OutputMerging merging(*args.one_lse.at(token, head),
                                      *args.other_lse.at(token, head));
    if (column == 0) *args.lse.at(token, head) = merging.lse;
    if (column >= args.columns) continue;
    cuda::Packed<Element, kCount> one, other, merged;
    one.load(args.one.at(token, head) + column);
    other.load(args.other.at(token, head) + column);
    float values[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = merging.of(one[i], other[i]);
    merged.narrow(values);
    merged.store(args.output.at(token, head) + column);
  }
}

template <int kCount>
Status launch_units(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& given = call.operands;
  const int64_t units = std::max<int64_t>(cuda::ceil_div(f.shape[2], kCount), 1);
  const int64_t count = f.rows() * units;
  if (count == 0) return Status::success();
  const cuda::Grid grid = {.blocks = std::min(cuda::ceil_div(count, kThreads), cuda::kMaxIndex),
                           .threads = dim3(kThreads)};
  const MergeArgs args = {Heads<const Element>(given[kOutputA]),
                          Heads<const Element>(given[kOutputB]),
                          Heads<const float>(given[kLseA]),
                          Heads<const float>(given[kLseB]),
                          Heads<Element>(given[kOutput]),
                          Heads<float>(given[kLse]),
                          cuda::WideDivider(f.rows(), units),
                          cuda::WideDivider(f.shape[0], f.shape[1]),
                          f.shape[2],
                          count,
                          grid.blocks * kThreads};
  return cuda::launch(merge_units<kCount>, grid, args, bound);
}

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(cuda::preload(merge_units<kColumns>));
  return cuda::preload(merge_units<1>);
}

Status bind(const Call& call, Bound& bound) {
  const int64_t row_bytes = call.fields<Fields>().shape[2] * int64_t{sizeof(Element)};
  bool whole = true;
  for (const Operand operand : {kOutputA, kOutputB, kOutput})
    whole = whole && cuda::has_whole_words(call.operands[operand], row_bytes, sizeof(Element),
                                           cuda::kVectorBytes);
  return whole ? launch_units<kColumns>(call, bound) : launch_units<1>(call, bound);
}

constexpr Kernel kKernels[] = {{.op = "merge_attention_states",
                                .body = "elements",
                                .dtypes = kDTypes<cuda::kElement, cuda::kElement>,
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {80, kLastArch},
                                .rank = 0,
                                .guarantee = kGuarantee,
                                .rejects = rejects<cuda::kElement>,
                                .workspace = no_workspace,
                                .prepare = prepare,
                                .bind = bind}};

}  // namespace
}  // namespace planq::merge_attention_states
