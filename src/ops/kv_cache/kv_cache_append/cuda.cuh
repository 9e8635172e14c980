// kv_cache_append on CUDA. A block has some tokens. First it finds out which of them count: it puts
// their slots into a table in shared memory, and looks the slots of all later tokens up in it. Then
// its threads copy the heads of those that count, a vector each at a time. Blocks behind those
// count the slots that the cache lacks. The file that includes this names the type of keys and
// values: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/sku.h"
#include "cuda/counter.cuh"
#include "cuda/divider.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/neighbours.cuh"
#include "math/conversions.h"
#include "ops/kv_cache/kv_cache_append/cache.h"

namespace planq::kv_cache_append {
namespace {

using cuda::Element;
using std::int64_t;

constexpr int kThreads = 256;
constexpr int kVector = cuda::kVectorBytes / static_cast<int>(sizeof(Element));
// Tokens of a block at most, and heads that a thread has under way.
constexpr int kMostTokens = 512, kHeads = 4;
// Slots of later tokens that a thread looks up together.
constexpr int kSlots = 8;

struct AppendArgs {
  Cache cache;
  cuda::Counter invalid;
  cuda::WideDivider rows;  // of a token: the heads of its key, then those of its value
  int64_t blocks;          // of tokens
  int each, lanes;         // tokens of a block, threads of a head
  int places_log2;         // of the table that a block's slots have
};

// --- Which tokens count --------------------------------------------------------------------------

// The slots of a block's tokens, each with the last of these tokens that has it.
struct SlotTable {
  static constexpr int kPlaces = 2 * kMostTokens;
  static constexpr unsigned long long kFree = ~0ull;  // no slot is negative
  static constexpr int kLost = 0x7FFFFFFF;            // a later block's token has the slot

  unsigned long long slots[kPlaces];
  int last[kPlaces];

  __device__ __forceinline__ static int first_place(unsigned long long slot, int places_log2) {
    return static_cast<int>((slot * 0x9E3779B97F4A7C15ull) >> (64 - places_log2));
  }
  __device__ __forceinline__ int enter(unsigned long long slot, int places_log2) {
    int place = first_place(slot, places_log2);
    while (true) {
      const unsigned long long found = atomicCAS(&slots[place], kFree, slot);
      if (found == kFree || found == slot) return place;
      place = (place + 1) & ((1 << places_log2) - 1);
    }
  }
  // Where the slot is; negative: nowhere. At least half of the places are free.
  __device__ __forceinline__ int find(unsigned long long slot, int places_log2) const {
    int place = first_place(slot, places_log2);
    while (true) {
      if (slots[place] == slot) return place;
      if (slots[place] == kFree) return -1;
      place = (place + 1) & ((1 << places_log2) - 1);
    }
  }
};

// Of a block's tokens: where in the cache they go, of those that count.
struct BlockTokens {
  SlotTable table;
  int64_t key[kMostTokens], value[kMostTokens];
  int place[kMostTokens];  // in the table; negative: the token is skipped
};

__device__ __forceinline__ void lose_to_later(const AppendArgs& args, int64_t next,
                                              SlotTable& table) {
  const Cache& cache = args.cache;
#pragma unroll 1
  for (int64_t i = next + threadIdx.x; i < cache.tokens; i += kSlots * kThreads) {
    int64_t slots[kSlots];
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      const int64_t token = i + k * kThreads;
      slots[k] = token < cache.tokens ? cache.slots[token] : -1;
    }
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      if (!cache.has(slots[k])) continue;
      const int place = table.find(static_cast<unsigned long long>(slots[k]), args.places_log2);
      if (place >= 0) table.last[place] = SlotTable::kLost;  // whoever writes it
    }
  }
}

// By all threads. Tokens that do not count get a negative place.
__device__ __forceinline__ void choose_tokens(const AppendArgs& args, int64_t first, int count,
                                              BlockTokens& own) {
  const Cache& cache = args.cache;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 1 << args.places_log2; i += kThreads) {
    own.table.slots[i] = SlotTable::kFree;
    own.table.last[i] = -1;
  }
  __syncthreads();
  for (int i = thread; i < count; i += kThreads) {
    const int64_t slot = cache.slots[first + i];
    own.place[i] = -1;
    if (!cache.has(slot)) continue;
    own.place[i] = own.table.enter(static_cast<unsigned long long>(slot), args.places_log2);
    atomicMax(&own.table.last[own.place[i]], i);
    const int64_t page = slot / cache.page_size, place = slot - page * cache.page_size;
    own.key[i] = page * cache.key.page + place * cache.key.place;
    own.value[i] = page * cache.value.page + place * cache.value.place;
  }
  __syncthreads();
  lose_to_later(args, first + count, own.table);
  __syncthreads();
  for (int i = thread; i < count; i += kThreads)
    if (own.place[i] >= 0 && own.table.last[own.place[i]] != i) own.place[i] = -1;
  __syncthreads();
}

// --- Copies --------------------------------------------------------------------------------------

template <DType kCacheType>
struct Codes {
  using Type = std::uint8_t;
};
template <>
struct Codes<cuda::kElement> {
  using Type = Element;
};

// A head of a token: without columns, where there is nothing to copy.
template <class Code>
struct HeadCopy {
  const Element* from;
  Code* to;
  int64_t columns;
  float scale;
};

template <class Code>
__device__ __forceinline__ HeadCopy<Code> head_of(const AppendArgs& args, const BlockTokens& own,
                                                  int64_t first, int count, int64_t row) {
  const Cache& cache = args.cache;
  const int64_t token = args.rows.quotient(row);
  if (token >= count || own.place[token] < 0) return {nullptr, nullptr, 0, 0};
  const int64_t index = row - token * args.rows.divisor();
  const bool is_key = index < cache.heads;
  const int64_t head = is_key ? index : index - cache.heads;
  const Side& side = is_key ? cache.key : cache.value;
  const int64_t to = (is_key ? own.key[token] : own.value[token]) + head * side.cache_head;
  return {static_cast<const Element*>(side.input) + (first + token) * side.token +
              head * side.input_head,
          static_cast<Code*>(side.cache) + to, side.columns, cache.scale(side, head)};
}

template <DType kCacheType, int kEach>
__device__ __forceinline__ cuda::Neighbours<typename Codes<kCacheType>::Type, kEach> coded(
    const cuda::Neighbours<Element, kEach>& elements, float scale) {
  if constexpr (kCacheType == cuda::kElement) {
    return elements;
  } else {
    cuda::Neighbours<std::uint8_t, kEach> codes;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      codes.each[i] = math::cache_code<kCacheType>(math::widened(elements.each[i]), scale);
    return codes;
  }
}

template <DType kCacheType, int kEach>
__global__ void __launch_bounds__(kThreads) append_tokens(const __grid_constant__ AppendArgs args) {
  using Code = typename Codes<kCacheType>::Type;
  const Cache& cache = args.cache;
  if (blockIdx.x >= args.blocks)
    return args.invalid.count<kThreads>(blockIdx.x - args.blocks, [&](int64_t token) {
      return cache.is_beyond(cache.slots[token]);
    });
  __shared__ BlockTokens own;
  const int64_t first = int64_t{blockIdx.x} * args.each;
  const int count = static_cast<int>(min(int64_t{args.each}, cache.tokens - first));
  choose_tokens(args, first, count, own);
  const int lane = static_cast<int>(threadIdx.x) % args.lanes;
  const int team = static_cast<int>(threadIdx.x) / args.lanes, teams = kThreads / args.lanes;
  const int64_t rows = count * args.rows.divisor();
  const int64_t most = max(cache.key.columns, cache.value.columns);
#pragma unroll 1
  for (int64_t row = team; row < rows; row += kHeads * teams) {
    HeadCopy<Code> heads[kHeads];
#pragma unroll
    for (int k = 0; k < kHeads; ++k)
      heads[k] = head_of<Code>(args, own, first, count, row + k * teams);
#pragma unroll 1
    for (int64_t column = lane * kEach; column < most; column += args.lanes * kEach) {
      cuda::Neighbours<Element, kEach> elements[kHeads];
#pragma unroll
      for (int k = 0; k < kHeads; ++k)
        if (column < heads[k].columns) elements[k].load(heads[k].from + column);
#pragma unroll
      for (int k = 0; k < kHeads; ++k)
        if (column < heads[k].columns)
          coded<kCacheType, kEach>(elements[k], heads[k].scale).store(heads[k].to + column);
    }
  }
}

// --- From a call to a launch ---------------------------------------------------------------------

template <DType kCacheType>
Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY((cuda::preload(append_tokens<kCacheType, kVector>)));
  return cuda::preload(append_tokens<kCacheType, 1>);
}

// Whether heads are whole vectors that begin at vectors, and at words of codes in the cache.
template <DType kCacheType>
bool has_vectors(const Call& call) {
  constexpr int kSize = sizeof(Element), kCode = sizeof(typename Codes<kCacheType>::Type);
  const Fields& f = call.fields<Fields>();
  const auto whole = [&](Operand input, Operand cache, int64_t columns) {
    return cuda::has_whole_words(call.operands[input], columns * kSize, kSize,
                                 cuda::kVectorBytes) &&
           cuda::has_whole_words(call.operands[cache], columns * kCode, kCode, kVector * kCode);
  };
  return whole(kKey, kKeyCache, f.key_shape.last()) &&
         (f.value_dim == 0 || whole(kValue, kValueCache, f.value_dim));
}

// Few tokens: a block each; many: as many blocks as run at a time, so that each reads the slots of
// the others once for many tokens.
AppendArgs arguments_of(const Call& call, int vector) {
  const Cache cache(call);
  const int64_t rows = cache.heads * (cache.value.columns > 0 ? 2 : 1);
  const int64_t columns = std::max(cache.key.columns, cache.value.columns);
  const int64_t slots = int64_t{2} * std::max(call.device.multiprocessors, 1);
  const int each =
      static_cast<int>(std::clamp<int64_t>(cuda::ceil_div(cache.tokens, slots), 1, kMostTokens));
  const int64_t lanes =
      std::min(cuda::power_of_two(cuda::ceil_div(columns, vector)), int64_t{cuda::kWarp});
  return {cache,
          cuda::Counter(cache.tokens, call.operands[kInvalid].data, call.device),
          cuda::WideDivider(each + kHeads * kThreads, rows),
          rows == 0 || columns == 0 ? 0 : cuda::ceil_div(cache.tokens, each),
          each,
          static_cast<int>(lanes),
          static_cast<int>(std::bit_width(static_cast<unsigned>(each) * 2 - 1))};
}

template <DType kCacheType>
Status bind(const Call& call, Bound& bound) {
  const bool whole = has_vectors<kCacheType>(call);
  const AppendArgs args = arguments_of(call, whole ? kVector : 1);
  const cuda::Grid grid = {.blocks = args.blocks + args.invalid.blocks, .threads = dim3(kThreads)};
  PLANQ_TRY(args.invalid.clear(bound));
  return cuda::launch(whole ? append_tokens<kCacheType, kVector> : append_tokens<kCacheType, 1>,
                      grid, args, bound);
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
          .guarantee = kGuarantee<kCacheType>,
          .rejects = rejects<cuda::kElement, kCacheType>,
          .workspace = no_workspace,
          .prepare = prepare<kCacheType>,
          .bind = bind<kCacheType>};
}

constexpr Kernel kKernels[] = {make_kernel<cuda::kElement>(), make_kernel<DType::Int8>(),
                               make_kernel<DType::Float8E4M3FN>(),
                               make_kernel<DType::Float8E5M2>()};

}  // namespace
}  // namespace planq::kv_cache_append
