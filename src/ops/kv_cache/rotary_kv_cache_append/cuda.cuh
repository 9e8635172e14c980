// rotary_kv_cache_append on CUDA in one launch. A block has some tokens and finds out which of them
// count in the cache; a block with one token has its heads under way meanwhile. Its teams of
// threads take the heads of these tokens one after another: queries, keys and values. They have the
// columns of a head in registers, turn those of queries and keys, and store what the cache takes
// from there. Blocks before those count the positions that the table lacks and the slots that the
// cache lacks. What does not lie as vectors is left to the parts. The file that includes this names
// the type of the elements: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/counter.cuh"
#include "cuda/divider.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "ops/kv_cache/cache.h"
#include "ops/kv_cache/coded.cuh"
#include "ops/kv_cache/last_tokens.cuh"
#include "ops/kv_cache/rotary_kv_cache_append/desc.h"
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

struct HeadArgs {
  position::Heads heads;
  kv_cache::Cache cache;
  kv_cache::TokenTable table;
  cuda::Counter no_position, no_slot;
  cuda::WideDivider of_token, pages;  // of_token: heads of a query, of a key, and of a value
  int lanes, units;                   // threads of a head, and those that have columns of pairs
};

__device__ __forceinline__ bool counts_invalid(const HeadArgs& args) {
  const int64_t block = blockIdx.x, of_positions = args.no_position.blocks;
  if (block >= of_positions + args.no_slot.blocks) return false;
  if (block < of_positions)
    args.no_position.count<kThreads>(
        block, [&](int64_t i) { return !args.heads.has(args.heads.position(i)); });
  else
    args.no_slot.count<kThreads>(
        block - of_positions, [&](int64_t i) { return args.cache.is_beyond(args.cache.slots[i]); });
  return true;
}

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
  __device__ __forceinline__ void append(const HeadRuns& held, int64_t slot, bool is_lost) const {
    const int64_t page = args.pages.quotient(slot), place = slot - page * args.pages.divisor();
    const Side& own = side();
    const float scale = args.cache.scale(own, cached_head());
    Code<kCacheType>* const to = static_cast<Code<kCacheType>*>(own.cache) + page * own.page +
                                 place * own.place + cached_head() * own.cache_head;
#pragma unroll
    for (int run = 0; run < 2; ++run)
      if (has(run)) {
        const auto codes = kv_cache::coded<kCacheType>(held.runs[run], scale);
        codes.store(to + unit().column(run));
      }
    append_rest(to, scale, is_lost);
  }
  // Columns behind the runs of the team.
  __device__ __forceinline__ void append_rest(Code<kCacheType>* to, float scale,
                                              bool is_lost) const {
    const int64_t first = is_turned() ? args.heads.rotary : int64_t{2} * args.lanes * kVector;
#pragma unroll 1
    for (int64_t i = first + lane * kVector; i < side().columns; i += args.lanes * kVector) {
      cuda::Neighbours<Element, kVector> own;
      own.load(row() + i);
      if (is_turned() && is_lost) lose(own);
      kv_cache::coded<kCacheType>(own, scale).store(to + i);
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
  if (counts_invalid(args)) return;
  const position::Heads& heads = args.heads;
  const int64_t block = blockIdx.x - args.no_position.blocks - args.no_slot.blocks;
  const int64_t first = block * args.table.each;
  const int count = static_cast<int>(min(int64_t{args.table.each}, heads.tokens - first));
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
      } else if (own.has(0)) {
        position::Angles<kVector> angles;
        angles.load(heads.cosines(position), own.unit());
        held.turn(angles, heads.is_interleaved);
      }
      if (own.has(0)) held.store(own.row(), own.unit());
    }
    const int64_t slot = own.is_cached() ? tokens.slot(static_cast<int>(of_block)) : -1;
    if (slot >= 0) own.append(held, slot, !exists);
    if (own.is_turned() && !exists) own.lose_rest();
  }
}

// --- From a call to a launch ---------------------------------------------------------------------

template <DType kCacheType>
Status prepare_heads(const Descriptor& descriptor, const Device& device, State& state) {
  const int bytes = kv_cache::TokenTable::most_shared_bytes();
  PLANQ_TRY((cuda::preload(turn_and_append<kCacheType, false>, bytes)));
  PLANQ_TRY((cuda::preload(turn_and_append<kCacheType, true>, bytes)));
  return prepare(descriptor, device, state);
}

// Why a team cannot have heads of this shape, wherever they lie.
template <DType kCacheType>
Reason rejects_heads(const Descriptor& descriptor, const Device& device) {
  const Fields& f = descriptor.as<Fields>();
  if (const Reason reason = rejects<cuda::kElement, kCacheType>(descriptor, device);
      !reason.accepted())
    return reason;
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
  return position::has_turned_vectors(heads, own, true) && whole(kQuery, columns, kSize) &&
         whole(kKey, columns, kSize) && whole(kKeyCache, columns, kCode) && has_values &&
         (f.norm_weight_dtype == DType::Unset ||
          position::has_weight_vectors(own, heads.weight_dtype, true));
}

// Few tokens: a block each; many: as many blocks as run at a time.
HeadArgs arguments_of(const Call& call, const position::Heads& heads,
                      const kv_cache::Cache& cache) {
  const Fields& f = call.fields<Fields>();
  const int64_t slots = int64_t{kBlocks} * std::max(call.device.multiprocessors, 1);
  const int each = static_cast<int>(
      std::clamp<int64_t>(cuda::ceil_div(heads.tokens, slots), 1, kv_cache::kMostTokens));
  const int units = heads.rotary / 2 / kVector;
  auto* const invalid = static_cast<int64_t*>(call.operands[kInvalid].data);
  const int64_t of_token = heads.of_token + (f.value_dim > 0 ? f.key_heads : 0);
  return {heads,
          cache,
          kv_cache::TokenTable(each),
          cuda::Counter(heads.tokens, invalid, call.device),
          cuda::Counter(heads.tokens, invalid + 1, call.device),
          cuda::WideDivider(each + kThreads, of_token),
          cuda::WideDivider(f.pages, f.page_size),
          static_cast<int>(cuda::power_of_two(units)),
          units};
}

template <DType kCacheType>
Status bind_heads(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& given = call.operands;
  const position::HeadOperands own = {given[kQuery],    given[kKey],         given[kCosSin],
                                      given[kPosition], given[kQueryWeight], given[kKeyWeight],
                                      given[kEps]};
  const position::Heads heads(f, own);
  if (!has_vectors<kCacheType>(call, heads, own)) {
    bound.name_body("parts");
    return bind(call, bound);
  }
  const kv_cache::Cache cache(f, f.key_shape(),
                              {given[kKey], given[kValue], given[kKeyCache], given[kValueCache],
                               given[kSlot], given[kKeyScale], given[kValueScale]});
  const HeadArgs args = arguments_of(call, heads, cache);
  const int64_t counting = args.no_position.blocks + args.no_slot.blocks;
  cuda::Grid grid = {.blocks = counting + cuda::ceil_div(heads.tokens, args.table.each),
                     .threads = dim3(kThreads)};
  grid.shared_bytes = args.table.shared_bytes();
  if (args.no_position.blocks > 1)  // both numbers, which are neighbours
    PLANQ_TRY(cuda::clear(args.no_position.total, 2 * sizeof(int64_t), bound));
  const bool has_norm = f.norm_weight_dtype != DType::Unset;
  return cuda::launch(
      has_norm ? turn_and_append<kCacheType, true> : turn_and_append<kCacheType, false>, grid, args,
      bound);
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

constexpr Kernel kKernels[] = {make_kernel<cuda::kElement>(), make_kernel<DType::Int8>(),
                               make_kernel<DType::Float8E4M3FN>(),
                               make_kernel<DType::Float8E5M2>()};

}  // namespace
}  // namespace planq::rotary_kv_cache_append
