// kv_cache_append on CUDA. A block has some tokens, whose keys and values are numbered as vectors
// of one list. It finds out which tokens count, and its threads copy the vectors of these; a block
// with one token has the first vectors under way meanwhile. Blocks before those count the slots
// that the cache lacks. The file that includes this names the type of keys and values: see
// cuda/element.cuh.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/architectures.h"
#include "core/sku.h"
#include "cuda/counter.cuh"
#include "cuda/divider.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/neighbours.cuh"
#include "ops/kv_cache/cache.h"
#include "ops/kv_cache/coded.cuh"
#include "ops/kv_cache/kv_cache_append/desc.h"
#include "ops/kv_cache/last_tokens.cuh"

namespace planq::kv_cache_append {
namespace {

using cuda::Element;
using kv_cache::Cache;
using kv_cache::Code;
using kv_cache::Side;
using std::int64_t;

constexpr int kThreads = 512, kBlocks = 2;  // of a multiprocessor
constexpr int kVector = cuda::kVectorBytes / static_cast<int>(sizeof(Element));
// Vectors that a thread has under way.
constexpr int kVectors = 4;

struct AppendArgs {
  Cache cache;
  cuda::Counter invalid;
  kv_cache::TokenTable table;
  int64_t blocks;                        // of tokens
  cuda::WideDivider token;               // vectors of a token: its key's, then its value's
  cuda::WideDivider key_row, value_row;  // of a head
  cuda::WideDivider pages;
  cuda::WideDivider heads;  // of a token: its key's, then its value's
  int lanes;                // threads of a head that measure it
};

__device__ __forceinline__ bool counts_invalid(const AppendArgs& args) {
  if (blockIdx.x >= args.invalid.blocks) return false;
  const Cache& cache = args.cache;
  args.invalid.count<kThreads>(blockIdx.x,
                               [&](int64_t token) { return cache.is_beyond(cache.slots[token]); });
  return true;
}

// A vector of a block's tokens, and where it goes behind its token's place in the cache.
template <int kEach>
struct HeldVector {
  cuda::Neighbours<Element, kEach> elements;
  int64_t to;
  float scale;
  int token;  // of the block; negative: there is no vector
  bool is_key;

  // counts(token): whether the vectors of a token are wanted, as far as that is known.
  template <class Counts>
  __device__ __forceinline__ void load(const AppendArgs& args, int64_t first, int count,
                                       int64_t index, const Counts& counts) {
    const Cache& cache = args.cache;
    const int64_t of_block = args.token.quotient(index);
    token = of_block < count ? static_cast<int>(of_block) : -1;
    if (token >= 0 && !counts(token)) token = -1;
    if (token < 0) return;
    const int64_t own = index - token * args.token.divisor();
    const int64_t of_key = cache.heads * args.key_row.divisor();
    is_key = own < of_key;
    const Side& side = is_key ? cache.key : cache.value;
    const cuda::WideDivider& row = is_key ? args.key_row : args.value_row;
    const int64_t in_side = is_key ? own : own - of_key;
    const int64_t head = row.quotient(in_side);
    const int64_t column = (in_side - head * row.divisor()) * kEach;
    elements.load(static_cast<const Element*>(side.input) + (first + token) * side.token +
                  head * side.input_head + column);
    to = head * side.cache_head + column;
    scale = cache.scale(side, head);
  }
  template <DType kCacheType>
  __device__ __forceinline__ void store(const AppendArgs& args, int64_t slot) const {
    const Side& side = is_key ? args.cache.key : args.cache.value;
    const int64_t page = args.pages.quotient(slot), place = slot - page * args.pages.divisor();
    Code<kCacheType>* const at =
        static_cast<Code<kCacheType>*>(side.cache) + page * side.page + place * side.place + to;
    kv_cache::coded<kCacheType>(elements, scale).store(at);
  }
};

template <DType kCacheType, int kEach>
__global__ void __launch_bounds__(kThreads, kBlocks)
    append_tokens(const __grid_constant__ AppendArgs args) {
  cuda::follow_previous();
  const Cache& cache = args.cache;
  if (counts_invalid(args)) return;
  const int64_t first = (int64_t{blockIdx.x} - args.invalid.blocks) * args.table.each;
  const int count = static_cast<int>(min(int64_t{args.table.each}, cache.tokens - first));
  const int64_t vectors = count * args.token.divisor();
  kv_cache::BlockTokens own;
  bool chosen = args.table.each > 1;
  if (chosen) own.choose<kThreads>(cache, args.table, first, count);
#pragma unroll 1
  for (int64_t i = threadIdx.x; i < vectors || !chosen; i += kVectors * kThreads) {
    HeldVector<kEach> held[kVectors];
    const auto counts = [&](int token) { return !chosen || own.slot(token) >= 0; };
#pragma unroll
    for (int k = 0; k < kVectors; ++k) held[k].load(args, first, count, i + k * kThreads, counts);
    if (!chosen) own.choose_one<kThreads>(cache, first);
    chosen = true;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (held[k].token < 0) continue;
      const int64_t slot = own.slot(held[k].token);
      if (slot >= 0) held[k].template store<kCacheType>(args, slot);
    }
  }
}

// --- Scales that are measured --------------------------------------------------------------------

// A head of a token, by a team of threads.
template <DType kCacheType, int kEach>
struct MeasuredHead {
  const Side& side;
  const Element* from;
  int64_t head;
  int lane, lanes;

  // Calls use(elements, column) for the thread's columns.
  template <class Use>
  __device__ __forceinline__ void each(const Use& use) const {
#pragma unroll 1
    for (int64_t column = lane * kEach; column < side.columns; column += lanes * kEach) {
      cuda::Neighbours<Element, kEach> own;
      own.load(from + column);
      use(own, column);
    }
  }
  __device__ __forceinline__ std::uint32_t own_peak() const {
    std::uint32_t peak = 0;
    each([&](const cuda::Neighbours<Element, kEach>& own, int64_t) {
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        peak = max(peak, math::magnitude_bits(math::widened(own.each[i])));
    });
    return peak;
  }
  __device__ __forceinline__ void store(float scale, int64_t page, int64_t place) const {
    if (lane == 0)
      side.measured[page * side.scale_page + place * side.scale_place + head * side.scale_head] =
          scale;
    Code<kCacheType>* const to = static_cast<Code<kCacheType>*>(side.cache) + page * side.page +
                                 place * side.place + head * side.cache_head;
    each([&](const cuda::Neighbours<Element, kEach>& own, int64_t column) {
      kv_cache::coded<kCacheType>(own, scale).store(to + column);
    });
  }
};

template <DType kCacheType, int kEach>
__global__ void __launch_bounds__(kThreads, kBlocks)
    append_measured(const __grid_constant__ AppendArgs args) {
  cuda::follow_previous();
  const Cache& cache = args.cache;
  if (counts_invalid(args)) return;
  const int64_t first = (int64_t{blockIdx.x} - args.invalid.blocks) * args.table.each;
  const int count = static_cast<int>(min(int64_t{args.table.each}, cache.tokens - first));
  const int team = static_cast<int>(threadIdx.x) / args.lanes, teams = kThreads / args.lanes;
  const int lane = static_cast<int>(threadIdx.x) % args.lanes;
  const int64_t heads = count * args.heads.divisor();
  kv_cache::BlockTokens tokens;
  bool chosen = args.table.each > 1;
  if (chosen) tokens.choose<kThreads>(cache, args.table, first, count);
  // All threads go along: those of a warp find the largest magnitudes together.
#pragma unroll 1
  for (int64_t i = 0; i < heads; i += teams) {
    const bool is_there = i + team < heads;
    const int64_t token = is_there ? args.heads.quotient(i + team) : 0;
    const int64_t in_token = is_there ? i + team - token * args.heads.divisor() : 0;
    const bool is_key = in_token < cache.heads;
    const Side& side = is_key ? cache.key : cache.value;
    const int64_t head = is_key ? in_token : in_token - cache.heads;
    const Element* const from = static_cast<const Element*>(side.input) +
                                (first + token) * side.token + head * side.input_head;
    const MeasuredHead<kCacheType, kEach> own = {side, from, head, lane, args.lanes};
    std::uint32_t peak = is_there ? own.own_peak() : 0;
#pragma unroll 1
    for (int step = 1; step < args.lanes; step *= 2)
      peak = max(peak, __shfl_xor_sync(cuda::kAllLanes, peak, step));
    if (!chosen) tokens.choose_one<kThreads>(cache, first);
    chosen = true;
    const int64_t slot = is_there ? tokens.slot(static_cast<int>(token)) : -1;
    if (slot < 0) continue;
    const int64_t page = args.pages.quotient(slot);
    own.store(math::measured_scale<kCacheType>(peak), page, slot - page * args.pages.divisor());
  }
}

// --- From a call to a launch ---------------------------------------------------------------------

using AppendKernel = void (*)(AppendArgs);

// Of single elements, and of vectors.
template <DType kCacheType>
constexpr AppendKernel kCopies[] = {append_tokens<kCacheType, 1>,
                                    append_tokens<kCacheType, kVector>};
template <DType kCacheType>
constexpr AppendKernel kMeasuring[] = {append_measured<kCacheType, 1>,
                                       append_measured<kCacheType, kVector>};
template <DType kCacheType>
AppendKernel kernel_of(bool measures, bool whole) {
  if constexpr (is_code(kCacheType))
    if (measures) return kMeasuring<kCacheType>[whole];
  return kCopies<kCacheType>[whole];
}

template <DType kCacheType>
Status prepare(const Descriptor&, const Device&, State&) {
  const int bytes = kv_cache::TokenTable::most_shared_bytes();
  for (const AppendKernel kernel : kCopies<kCacheType>) PLANQ_TRY(cuda::preload(kernel, bytes));
  if constexpr (is_code(kCacheType))
    for (const AppendKernel kernel : kMeasuring<kCacheType>)
      PLANQ_TRY(cuda::preload(kernel, bytes));
  return Status::success();
}

// Whether heads are whole vectors that begin at vectors, and at words of codes in the cache.
template <DType kCacheType>
bool has_vectors(const Call& call) {
  constexpr int kSize = sizeof(Element), kCode = sizeof(Code<kCacheType>);
  const Fields& f = call.fields<Fields>();
  const auto whole = [&](Operand input, Operand cache, int64_t columns) {
    return cuda::has_whole_words(call.operands[input], columns * kSize, kSize,
                                 cuda::kVectorBytes) &&
           cuda::has_whole_words(call.operands[cache], columns * kCode, kCode, kVector * kCode);
  };
  return whole(kKey, kKeyCache, f.key_shape.last()) &&
         (f.value_dim == 0 || whole(kValue, kValueCache, f.value_dim));
}

// Few tokens: a block each; many: as many blocks as run at a time.
AppendArgs arguments_of(const Call& call, int vector) {
  const Cache cache = cache_of(call);
  const Fields& f = call.fields<Fields>();
  const int64_t slots = int64_t{kBlocks} * std::max(call.device.multiprocessors, 1);
  const int each = static_cast<int>(
      std::clamp<int64_t>(cuda::ceil_div(cache.tokens, slots), 1, kv_cache::kMostTokens));
  const int64_t key = cache.key.columns / vector, value = cache.value.columns / vector;
  const int64_t of_token = cache.heads * (key + value);
  return {
      cache,
      cuda::Counter(cache.tokens, call.operands[kInvalid].data, call.device),
      kv_cache::TokenTable(each),
      of_token == 0 && !cache.measures ? 0 : cuda::ceil_div(cache.tokens, each),
      cuda::WideDivider(each + kVectors * kThreads, of_token),
      cuda::WideDivider(cache.heads, key),
      cuda::WideDivider(cache.heads, value),
      cuda::WideDivider(f.pages, f.page_size),
      cuda::WideDivider(each + kThreads, cache.heads * (f.value_dim > 0 ? 2 : 1)),
      static_cast<int>(std::min(cuda::power_of_two(std::max(key, value)), int64_t{cuda::kWarp}))};
}

template <DType kCacheType>
Status bind(const Call& call, Bound& bound) {
  const bool whole = has_vectors<kCacheType>(call);
  const AppendArgs args = arguments_of(call, whole ? kVector : 1);
  cuda::Grid grid = {.blocks = args.invalid.blocks + args.blocks, .threads = dim3(kThreads)};
  grid.shared_bytes = args.table.shared_bytes();
  // A kernel behind a clearing waits for it by the stream's order.
  grid.dependent = args.invalid.blocks == 1 && has_dependent_launches(call.device.arch);
  PLANQ_TRY(args.invalid.clear(bound));
  return cuda::launch(kernel_of<kCacheType>(args.cache.measures, whole), grid, args, bound);
}

template <DType kCacheType>
constexpr Kernel make_kernel() {
  return {.op = "kv_cache_append",
          .body = "tokens",
          .dtypes = kDTypes<cuda::kElement, kCacheType>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80, kLastArch},
          .rank = 0,
          .guarantee = kGuarantee<cuda::kElement, kCacheType>,
          .rejects = rejects<cuda::kElement, kCacheType>,
          .workspace = no_workspace,
          .prepare = prepare<kCacheType>,
          .bind = bind<kCacheType>};
}

template <DType... kCacheTypes>
constexpr std::array kKernelsOf = {make_kernel<kCacheTypes>()...};
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
}  // namespace planq::kv_cache_append
