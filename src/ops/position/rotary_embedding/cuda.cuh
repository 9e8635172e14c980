// rotary_embedding on CUDA. Teams of threads have heads in registers: cosines and sines that a
// thread has read serve several heads of its token. With a norm, a head whose columns do not go
// into such teams is a warp's, which holds it in shared memory between the norm and the turn.
// Blocks behind those count the positions that the table lacks. The file that includes this names
// the type of the elements: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/architectures.h"
#include "core/sku.h"
#include "cuda/counter.cuh"
#include "cuda/divider.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/neighbours.cuh"
#include "cuda/tree_sum.cuh"
#include "math/conversions.h"
#include "ops/norm/arithmetic.h"
#include "ops/position/heads.h"
#include "ops/position/held_head.cuh"
#include "ops/position/rotary_embedding/desc.h"
#include "ops/position/turned.cuh"

namespace planq::rotary_embedding {
namespace {

using cuda::Element;
using cuda::kWarp;
using position::Angles;
using position::HeadRuns;
using position::Heads;
using position::HeldHead;
using position::kVector;
using position::nan_element;
using position::Unit;
using std::int64_t;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
// Heads of a token that a thread turns without a norm.
constexpr int kMostTurned = 4;

struct HeadArgs {
  Heads heads;
  cuda::WideDivider parts;  // of a token: groups of its heads
  cuda::Counter invalid;
  int64_t blocks;   // of the heads
  int lanes, each;  // threads of a head, and heads of a thread
};

__device__ __forceinline__ bool counts_invalid(const HeadArgs& args) {
  if (blockIdx.x < args.blocks) return false;
  const Heads& heads = args.heads;
  args.invalid.count<kThreads>(blockIdx.x - args.blocks,
                               [&](int64_t token) { return !heads.has(heads.position(token)); });
  return true;
}

// --- Heads of teams ------------------------------------------------------------------------------

// What is not turned, of a token whose position the table lacks.
__device__ __forceinline__ void lose_rest(const Heads& heads, int64_t token, int64_t first_head,
                                          int64_t step, int lane, int lanes) {
#pragma unroll 1
  for (int64_t head = first_head; head < heads.of_token; head += step) {
    Element* const row = heads.row<Element>(token, head);
    for (int i = heads.rotary + lane; i < heads.columns; i += lanes) row[i] = nan_element();
  }
}

// kNormRuns: of a team that has all columns of a head, which it normalises first, and whose warps'
// threads all go along; 0: there is no norm.
template <int kEach, int kNormRuns>
__global__ void __launch_bounds__(kThreads, kNormRuns == 2 ? 4 : 2)
    turn_heads(const __grid_constant__ HeadArgs args) {
  constexpr bool kNorm = kNormRuns > 0;
  constexpr int kMost = kNorm ? 1 : kMostTurned;
  if (kNorm && blockIdx.x == 0) position::prefetch_weights(args.heads);
  cuda::follow_previous();
  if (counts_invalid(args)) return;
  const Heads& heads = args.heads;
  const int team = static_cast<int>(threadIdx.x) / args.lanes;
  const int lane = static_cast<int>(threadIdx.x) % args.lanes;
  const int64_t part = int64_t{blockIdx.x} * (kThreads / args.lanes) + team;
  const int64_t token = args.parts.quotient(part);
  const bool is_there = token < heads.tokens;
  if (!kNorm && !is_there) return;
  const int64_t first_head = part - token * args.parts.divisor(), step = args.parts.divisor();
  const int half = heads.rotary / 2;
  const int64_t position = is_there ? heads.position(token) : -1;
  const bool exists = heads.has(position);
  const float* const table = heads.cosines(exists ? position : 0);
#pragma unroll 1
  for (int index = lane; index < half / kEach; index += args.lanes) {
    const Unit<kEach> unit = {index, half, heads.is_interleaved};
    HeadRuns<kEach, kNorm ? kNormRuns : 2> held[kMost];
    const auto has = [&](int k) {
      return is_there && k < args.each && first_head + k * step < heads.of_token;
    };
#pragma unroll
    for (int k = 0; k < kMost; ++k)
      if (has(k))
        held[k].load(heads.row<Element>(token, first_head + k * step), unit);
      else if (kNorm)
        held[k] = {};
    if constexpr (kNorm)
      held[0].normalize(heads, heads.weight(is_there ? first_head : 0), unit, args.lanes,
                        heads.eps.get());
    Angles<kEach> angles;
    if (exists) angles.load(table, unit);
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (!has(k)) continue;
      if (exists)
        held[k].turn(angles, heads.is_interleaved);
      else
        held[k].lose();
      held[k].store(heads.row<Element>(token, first_head + k * step), unit);
    }
  }
  if constexpr (!kNorm)
    if (!exists) lose_rest(heads, token, first_head, step, lane, args.lanes);
}

// --- Heads of a warp, with a norm, whatever their columns are ------------------------------------

template <int kEach>
__global__ void __launch_bounds__(kThreads) turn_normalized(const __grid_constant__ HeadArgs args) {
  if (blockIdx.x == 0) position::prefetch_weights(args.heads);
  cuda::follow_previous();
  if (counts_invalid(args)) return;
  const Heads& heads = args.heads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t part = int64_t{blockIdx.x} * kWarps + warp;
  const int64_t token = args.parts.quotient(part);
  if (token >= heads.tokens) return;
  const int64_t head = part - token * args.parts.divisor();
  const HeldHead<kEach> held = {heads,
                                static_cast<float*>(cuda::dynamic_shared()) + warp * heads.columns,
                                static_cast<int>(threadIdx.x) % kWarp};
  Element* const row = heads.row<Element>(token, head);
  const int64_t position = heads.position(token);
  if (!heads.has(position)) return held.write(row, nullptr);
  const float squares = held.read(row);
  held.scale(math::norm_factor(squares, heads.length, heads.eps.get()), heads.weight(head));
  __syncwarp();
  held.write(row, heads.cosines(position));
}

// --- From a call to a launch ---------------------------------------------------------------------

using HeadKernel = void (*)(HeadArgs);

constexpr int kMostSharedBytes = kWarps * static_cast<int>(kMostColumns * sizeof(float));

Status prepare(const Descriptor&, const Device&, State&) {
  for (const HeadKernel kernel : {turn_heads<kVector, 0>, turn_heads<kVector, 2>,
                                  turn_heads<kVector, 4>, turn_heads<kVector, 8>, turn_heads<1, 0>})
    PLANQ_TRY(cuda::preload(kernel));
  for (const HeadKernel kernel : {turn_normalized<kVector>, turn_normalized<1>})
    PLANQ_TRY(cuda::preload(kernel, kMostSharedBytes));
  return Status::success();
}

// Whether heads of queries and keys begin at vectors, and are whole vectors.
bool has_vectors(const Call& call, int64_t columns) {
  constexpr int kSize = sizeof(Element);
  const auto whole = [&](const OperandView& view) {
    return cuda::has_whole_words(view, columns * kSize, kSize, cuda::kVectorBytes);
  };
  return whole(call.operands[kQuery]) &&
         (call.fields<Fields>().key_heads == 0 || whole(call.operands[kKey]));
}

HeadArgs arguments_of(const Call& call, const Heads& heads, int64_t parts, int lanes, int each) {
  return {heads,
          cuda::WideDivider(heads.tokens + kThreads, parts),
          cuda::Counter(heads.tokens, call.operands[kInvalid].data, call.device),
          heads.tokens == 0 ? 0 : cuda::ceil_div(heads.tokens * parts, kThreads / lanes),
          lanes,
          each};
}

Status launch_heads(HeadKernel kernel, const HeadArgs& args, int shared_bytes, const Device& device,
                    Bound& bound) {
  PLANQ_TRY(args.invalid.clear(bound));
  cuda::Grid grid = {.blocks = args.blocks + args.invalid.blocks, .threads = dim3(kThreads)};
  // A kernel behind a clearing waits for it by the stream's order.
  grid.dependent = args.invalid.blocks == 1 && has_dependent_launches(device.arch);
  grid.shared_bytes = shared_bytes;
  return cuda::launch(kernel, grid, args, bound);
}

Status bind_normalized(const Call& call, const Heads& heads, Bound& bound) {
  const HeadKernel kernel =
      has_vectors(call, heads.columns) ? turn_normalized<kVector> : turn_normalized<1>;
  const int shared_bytes = kWarps * heads.columns * static_cast<int>(sizeof(float));
  return launch_heads(kernel, arguments_of(call, heads, heads.of_token, kWarp, 1), shared_bytes,
                      call.device, bound);
}

Status bind(const Call& call, Bound& bound) {
  const Heads heads = heads_of(call);
  const auto own = operands_of(call);
  const bool has_key = call.fields<Fields>().key_heads > 0;
  const bool has_norm = call.fields<Fields>().has_norm();
  const bool whole = position::has_turned_vectors(heads, own, has_key);
  const int runs = has_norm ? position::count_runs(heads.columns, heads.rotary) : 0;
  if (has_norm && (runs == 0 || !whole || !has_vectors(call, heads.columns) ||
                   !position::has_weight_vectors(own, heads.weight_dtype, has_key)))
    return bind_normalized(call, heads, bound);
  const int64_t units = heads.rotary / 2 / (whole ? kVector : 1);
  const int lanes = static_cast<int>(std::min<int64_t>(cuda::power_of_two(units), kThreads));
  // Few heads: all threads that they have; many: more bytes under way for each.
  const int64_t threads = heads.tokens * heads.of_token * lanes;
  const int64_t wanted =
      threads / (int64_t{2} * kThreads * std::max(call.device.multiprocessors, 1));
  const int each = static_cast<int>(std::clamp<int64_t>(wanted, 1, has_norm ? 1 : kMostTurned));
  const int64_t parts = cuda::ceil_div(heads.of_token, each);
  const HeadKernel kernel = runs == 2   ? turn_heads<kVector, 2>
                            : runs == 4 ? turn_heads<kVector, 4>
                            : runs == 8 ? turn_heads<kVector, 8>
                            : whole     ? turn_heads<kVector, 0>
                                        : turn_heads<1, 0>;
  return launch_heads(kernel, arguments_of(call, heads, parts, lanes, each), 0, call.device, bound);
}

constexpr Kernel kKernels[] = {{.op = "rotary_embedding",
                                .body = "heads",
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
}  // namespace planq::rotary_embedding
