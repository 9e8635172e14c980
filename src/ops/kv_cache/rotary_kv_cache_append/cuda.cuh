// rotary_kv_cache_append on CUDA in one launch. A block has some tokens and finds out which of them
// count in the cache; a block with one token has its heads under way meanwhile. Its teams of
// threads take the heads of these tokens one after another: queries, keys and values. They have the
// columns of a head in registers, turn those of queries and keys, and store what the cache takes
// from there, and queries that go to an output. Blocks before those count the positions that the
// table lacks and the slots that the cache lacks. What does not lie as vectors is left to the
// parts, or, with an output, to warps.cuh. The file that includes this names the type of the
// elements: see cuda/element.cuh.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "ops/kv_cache/coded.cuh"
#include "ops/kv_cache/last_tokens.cuh"
#include "ops/kv_cache/rotary_kv_cache_append/arguments.cuh"
#include "ops/kv_cache/rotary_kv_cache_append/desc.h"
#include "ops/kv_cache/rotary_kv_cache_append/warps.cuh"
#include "ops/position/turned.cuh"

namespace planq::rotary_kv_cache_append {
namespace {

using cuda::Element;
using kv_cache::Code;
using kv_cache::Side;
using position::kVector;
using std::int64_t;

using Unit = position::Unit<kVector>;
using HeadRuns = position::HeadRuns<kVector>;

constexpr int kThreads = 512, kBlocks = 2;  // of a multiprocessor
// Whether angles are read before the norm, not when they are needed: that takes registers.
constexpr bool kReadsEarly = kVector == 4;

// A head that a team has: of a query or a key, which is turned, or of a value.
template <DType kCacheType>
struct TeamHead {
  const HeadArgs& args;
  int64_t token, head;  // the head: of all three, in this order
  int lane;
  bool is_there;

  __device__ __forceinline__ bool is_turned() const { return head < args.heads.of_token; }
  __device__ __forceinline__ bool is_cached() const { return head >= args.heads.query_heads; }
  __device__ __forceinline__ Unit unit() const {
    // Runs of a value's columns lie as many apart as the team has.
    const int half = is_turned() ? args.heads.rotary / 2 : args.lanes * kVector;
    return {lane, half, args.heads.is_interleaved};
  }
  // Whether the team's thread has columns of a run.
  __device__ __forceinline__ bool has(int run) const {
    if (!is_there) return false;
    return is_turned() ? lane < args.units : unit().column(run) < args.cache.value.columns;
  }
  __device__ __forceinline__ Element* row() const {
    if (is_turned()) return args.heads.row<Element>(token, head);
    const Side& value = args.cache.value;
    return static_cast<Element*>(const_cast<void*>(value.input)) + token * value.token +
           (head - args.heads.of_token) * value.input_head;
  }
  __device__ __forceinline__ int64_t columns() const {
    return is_turned() ? args.heads.columns : args.cache.value.columns;
  }
  __device__ __forceinline__ const Side& side() const {
    return is_turned() ? args.cache.key : args.cache.value;
  }
  __device__ __forceinline__ int64_t cached_head() const {
    return head - (is_turned() ? args.heads.query_heads : args.heads.of_token);
  }

  __device__ __forceinline__ void load(HeadRuns& held) const {
#pragma unroll
    for (int run = 0; run < 2; ++run)
      if (has(run))
        held.runs[run].load(row() + unit().column(run));
      else
        held.runs[run] = {};
  }
  // Where the head's token is in the cache.
  __device__ __forceinline__ void append(const HeadRuns& held, int64_t slot, bool is_lost) const {
    const int64_t page = args.pages.quotient(slot), place = slot - page * args.pages.divisor();
    const Side& own = side();
    const float scale = args.cache.scale(own, cached_head());
    store(held, is_lost,
          static_cast<Code<kCacheType>*>(own.cache) + page * own.page + place * own.place +
              cached_head() * own.cache_head,
          [&](const auto& columns) { return kv_cache::coded<kCacheType>(columns, scale); });
  }
  // A query's place in the output.
  __device__ __forceinline__ void output(const HeadRuns& held, bool is_lost) const {
    args.output.with_type([&](auto kind) {
      constexpr DType kType = decltype(kind)::value;
      store(held, is_lost, args.output.row<Code<kType>>(token, head),
            [](const auto& columns) { return kv_cache::coded<kType>(columns, 1.0f); });
    });
  }
  // What `made` makes of all columns: of the runs that the thread holds, and of those behind them.
  template <class T, class Make>
  __device__ __forceinline__ void store(const HeadRuns& held, bool is_lost, T* to,
                                        const Make& made) const {
#pragma unroll
    for (int run = 0; run < 2; ++run)
      if (has(run)) made(held.runs[run]).store(to + unit().column(run));
    const int64_t first = is_turned() ? args.heads.rotary : int64_t{2} * args.lanes * kVector;
#pragma unroll 1
    for (int64_t i = first + lane * kVector; i < columns(); i += args.lanes * kVector) {
      cuda::Neighbours<Element, kVector> own;
      own.load(row() + i);
      if (is_turned() && is_lost) lose(own);
      made(own).store(to + i);
    }
  }
  // The columns that are not turned, of a token whose position the table lacks.
  __device__ __forceinline__ void lose_rest() const {
#pragma unroll 1
    for (int i = args.heads.rotary + lane * kVector; i < args.heads.columns;
         i += args.lanes * kVector) {
      cuda::Neighbours<Element, kVector> own;
      lose(own);
      own.store(row() + i);
    }
  }
  __device__ __forceinline__ static void lose(cuda::Neighbours<Element, kVector>& own) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) own.each[i] = position::nan_element();
  }
};

template <DType kCacheType, bool kNorm>
__global__ void __launch_bounds__(kThreads, kBlocks)
    turn_and_append(const __grid_constant__ HeadArgs args) {
  if (kNorm && blockIdx.x + 1 == gridDim.x) position::prefetch_weights(args.heads);
  cuda::follow_previous();
  if (counts_invalid<kThreads>(args)) return;
  const position::Heads& heads = args.heads;
  const auto [first, count] = BlockShare(args);
  const int team = static_cast<int>(threadIdx.x) / args.lanes, teams = kThreads / args.lanes;
  const int lane = static_cast<int>(threadIdx.x) % args.lanes;
  const int64_t all = count * args.of_token.divisor();
  const float eps = kNorm ? heads.eps.get() : 0.0f;
  kv_cache::BlockTokens tokens;
  bool chosen = args.table.each > 1;
  if (chosen) tokens.choose<kThreads>(args.cache, args.table, first, count);
  // All threads go along: those of a warp add up their squares together.
#pragma unroll 1
  for (int64_t i = 0; i < all; i += teams) {
    const bool is_there = i + team < all;
    const int64_t of_block = is_there ? args.of_token.quotient(i + team) : 0;
    const int64_t head = is_there ? i + team - of_block * args.of_token.divisor() : 0;
    const TeamHead<kCacheType> own = {args, first + of_block, head, lane, is_there};
    HeadRuns held;
    own.load(held);
    const int64_t position = heads.position(own.token);
    const bool exists = heads.has(position);
    position::Angles<kVector> angles;
    const bool turns = own.is_turned() && exists && own.has(0);
    if (kReadsEarly && turns) angles.load(heads.cosines(position), own.unit());
    if (!chosen) tokens.choose_one<kThreads>(args.cache, first);
    chosen = true;
    if constexpr (kNorm) {
      const Unit unit = {lane, heads.rotary / 2, heads.is_interleaved};
      HeadRuns normalized = held;
      normalized.normalize(heads, heads.weight(head), unit, args.lanes, eps);
      if (own.is_turned()) held = normalized;
    }
    if (!is_there) continue;
    if (own.is_turned()) {
      if (!exists) {
        held.lose();
      } else if (turns) {
        if (!kReadsEarly) angles.load(heads.cosines(position), own.unit());
        held.turn(angles, heads.is_interleaved);
      }
      if (args.output.is_in_place()) {
        if (own.has(0)) held.store(own.row(), own.unit());
      } else if (!own.is_cached()) {
        own.output(held, !exists);
      }
    }
    const int64_t slot = own.is_cached() ? tokens.slot(static_cast<int>(of_block)) : -1;
    if (slot >= 0) own.append(held, slot, !exists);
    if (args.output.is_in_place() && own.is_turned() && !exists) own.lose_rest();
  }
}

// --- From a call to a launch ---------------------------------------------------------------------

template <DType kCacheType>
Status prepare_heads(const Descriptor& descriptor, const Device& device, State& state) {
  const int bytes = kv_cache::TokenTable::most_shared_bytes();
  PLANQ_TRY((cuda::preload(turn_and_append<kCacheType, false>, bytes)));
  PLANQ_TRY((cuda::preload(turn_and_append<kCacheType, true>, bytes)));
  PLANQ_TRY(preload_warps<kCacheType>());
  return prepare(descriptor, device, state);
}

// Why a team cannot have heads of this shape, wherever they lie.
template <DType kCacheType>
Reason rejects_heads(const Descriptor& descriptor, const Device& device) {
  const Fields& f = descriptor.as<Fields>();
  if (const Reason reason = rejects_types<cuda::kElement, kCacheType>(descriptor);
      !reason.accepted())
    return reason;
  if (f.is_in_place()) {
    if (const Reason reason = rejects_parts_of(descriptor, device); !reason.accepted())
      return reason;
  }
  if (f.scale_scope == CacheScale::Token)
    return Reason::refuse(ReasonKind::Feature, "does not measure scales");
  const int64_t columns = f.query_shape.last();
  if (columns % kVector != 0 || f.value_dim % kVector != 0 || f.rotary_dim % (2 * kVector) != 0)
    return Reason::refuse(ReasonKind::Shape, "takes heads of whole vectors");
  const bool has_norm = f.norm_weight_dtype != DType::Unset;
  if (has_norm && position::count_runs(columns, f.rotary_dim) != 2)
    return Reason::refuse(ReasonKind::Shape,
                          "normalises heads whose columns are a power of two, "
                          "up to 32 vectors of each half, and all turned");
  return Reason::accept();
}

// Whether everything lies as vectors, and at words of codes in the cache.
template <DType kCacheType>
bool has_vectors(const Call& call, const position::Heads& heads,
                 const position::HeadOperands& own) {
  constexpr int kSize = sizeof(Element), kCode = sizeof(Code<kCacheType>);
  const Fields& f = call.fields<Fields>();
  const auto whole = [&](Operand operand, int64_t columns, int size) {
    return cuda::has_whole_words(call.operands[operand], columns * size, size, kVector * size);
  };
  const int64_t columns = f.query_shape.last();
  const bool has_values = f.value_dim == 0 || (whole(kValue, f.value_dim, kSize) &&
                                               whole(kValueCache, f.value_dim, kCode));
  const int output = f.is_in_place() ? kSize : storage_bytes(f.output_dtype);
  const bool has_output = f.is_in_place() || whole(kQueryOutput, columns, output);
  return has_output && position::has_turned_vectors(heads, own, true) &&
         whole(kQuery, columns, kSize) && whole(kKey, columns, kSize) &&
         whole(kKeyCache, columns, kCode) && has_values &&
         (f.norm_weight_dtype == DType::Unset ||
          position::has_weight_vectors(own, heads.weight_dtype, true));
}

template <DType kCacheType>
Status bind_heads(const Call& call, Bound& bound) {
  const position::HeadOperands own = head_operands_of(call.operands);
  const Fields& f = call.fields<Fields>();
  const position::Heads heads(f, own);
  if (!has_vectors<kCacheType>(call, heads, own)) {
    bound.name_body(f.is_in_place() ? "parts" : "warps");
    return f.is_in_place() ? bind(call, bound) : bind_warps<kCacheType>(call, bound);
  }
  HeadArgs args = arguments_of(call, heads, kBlocks, kv_cache::kMostTokens);
  args.units = heads.rotary / 2 / kVector;
  args.lanes = static_cast<int>(cuda::power_of_two(args.units));
  const bool has_norm = f.norm_weight_dtype != DType::Unset;
  return launch_tokens(
      has_norm ? turn_and_append<kCacheType, true> : turn_and_append<kCacheType, false>, kThreads,
      0, call.device, args, bound);
}

template <DType kCacheType>
constexpr Kernel make_kernel() {
  return {.op = "rotary_kv_cache_append",
          .body = "heads",
          .dtypes = kDTypes<cuda::kElement, kCacheType>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80, kLastArch},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects_heads<kCacheType>,
          .workspace = workspace,
          .prepare = prepare_heads<kCacheType>,
          .bind = bind_heads<kCacheType>,
          .largest_workspace = workspace,
          .prepared_workspace = prepared_workspace};
}

template <DType... kCacheTypes>
constexpr std::array kKernelsOf = {make_kernel<kCacheTypes>()...,
                                   make_warps_kernel<kCacheTypes>()...};
template <DType kType>
constexpr auto kernels_of_type() {
  if constexpr (kType == DType::Float32)
    return kKernelsOf<kType, DType::Int8, DType::Float8E4M3FN, DType::Float8E5M2, DType::Float16,
                      DType::BFloat16>;
  else
    return kKernelsOf<kType, DType::Int8, DType::Float8E4M3FN, DType::Float8E5M2>;
}
constexpr auto kKernels = kernels_of_type<cuda::kElement>();

}  // namespace
}  // namespace planq::rotary_kv_cache_append
