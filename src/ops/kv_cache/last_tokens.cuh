// Of the tokens that a block has, those that count: whose slot is one of the cache's, and no later
// token's. A block with one token compares its slot with those of all later ones. A block with
// several puts their slots into a table in shared memory, with a map of bits in front of it, and
// looks up the slots of all later blocks' tokens: nearly all find no bit. Every answer follows from
// the slots alone, whatever comes first.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "ops/kv_cache/cache.h"

namespace planq::kv_cache {

// Tokens of a block at most. Up to about a million tokens there are no more blocks than run at a
// time, whatever the number of tokens, and each reads every slot at most once; then there are more.
inline constexpr int kMostTokens = 4096;
// Slots of later tokens that a thread has under way.
inline constexpr int kSlots = 8;

// The shared memory of a block's tokens: their slots, the table, the bits.
struct TokenTable {
  int each;         // tokens of a block
  int places_log2;  // twice as many places as tokens, or more
  int bits_log2;    // hundreds of bits for a token, up to kMostBits

  explicit TokenTable(int tokens)
      : each(tokens),
        places_log2(std::bit_width(static_cast<unsigned>(tokens) * 2 - 1)),
        bits_log2(std::min(places_log2 + 9, kMostBits)) {}

  int shared_bytes() const {
    return each == 1 ? 0 : each * 8 + (4 << places_log2) + (1 << bits_log2) / 8;
  }
  static int most_shared_bytes() { return TokenTable(kMostTokens).shared_bytes(); }

 private:
  static constexpr int kMostBits = 18;
};

class BlockTokens {
 public:
  // Of a block with one token, by all its kThreads threads. What they load before this is under way
  // meanwhile.
  template <int kThreads>
  __device__ __forceinline__ void choose_one(const Cache& cache, std::int64_t token) {
    const std::int64_t own = cache.slots[token];
    bool lost = false;
#pragma unroll 1
    for (std::int64_t i = token + 1 + threadIdx.x; i < cache.tokens; i += kThreads)
      lost = lost || cache.slots[i] == own;
    lost = __syncthreads_or(lost) != 0;
    slot_ = lost || !cache.has(own) ? -1 : own;
  }
  // Of a block with several.
  template <int kThreads>
  __device__ __forceinline__ void choose(const Cache& cache, const TokenTable& sizes,
                                         std::int64_t first, int count) {
    is_many_ = true;
    slots_ = static_cast<std::int64_t*>(cuda::dynamic_shared());
    table_ = reinterpret_cast<int*>(slots_ + sizes.each);
    bits_ = reinterpret_cast<std::uint32_t*>(table_ + (1 << sizes.places_log2));
    clear<kThreads>(sizes);
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
    for (int i = thread; i < count; i += kThreads) {
      const std::int64_t slot = cache.slots[first + i];
      slots_[i] = cache.has(slot) ? slot : -1;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = thread; i < count; i += kThreads)
      if (slots_[i] >= 0) enter(sizes, i);
    __syncthreads();
    lose_to_later<kThreads>(cache, sizes, first + count);
    __syncthreads();
    drop<kThreads>(sizes, count);
  }
  // Of a token, by its number in the block; negative: it does not count.
  __device__ __forceinline__ std::int64_t slot(int token) const {
    return is_many_ ? slots_[token] : slot_;
  }

 private:
  static constexpr int kFree = -1, kLost = 0x7FFFFFFF;  // a later block's token has the slot

  __device__ __forceinline__ static std::uint32_t hash(std::int64_t slot) {
    const auto low = static_cast<std::uint32_t>(slot);
    const auto high = static_cast<std::uint32_t>(slot >> 32);
    return (low + high * 0x85EBCA77u) * 0x9E3779B1u;
  }

  template <int kThreads>
  __device__ __forceinline__ void clear(const TokenTable& sizes) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
    for (int i = thread; i < 1 << sizes.places_log2; i += kThreads) table_[i] = kFree;
#pragma unroll 1
    for (int i = thread; i < 1 << (sizes.bits_log2 - 5); i += kThreads) bits_[i] = 0;
  }
  // Of equal slots the table has the last token.
  __device__ __forceinline__ void enter(const TokenTable& sizes, int token) {
    const std::uint32_t mixed = hash(slots_[token]);
    const std::uint32_t bit = mixed >> (32 - sizes.bits_log2);
    atomicOr(&bits_[bit / 32], 1u << bit % 32);
    for (std::uint32_t place = mixed >> (32 - sizes.places_log2);;
         place = (place + 1) & ((1u << sizes.places_log2) - 1)) {
      const int found = atomicCAS(&table_[place], kFree, token);
      if (found == kFree) return;
      if (slots_[found] != slots_[token]) continue;
      atomicMax(&table_[place], token);
      return;
    }
  }
  // Where a slot is that no later block's token has; negative: nowhere.
  __device__ __forceinline__ int find(const TokenTable& sizes, std::int64_t slot) const {
    for (std::uint32_t place = hash(slot) >> (32 - sizes.places_log2);;
         place = (place + 1) & ((1u << sizes.places_log2) - 1)) {
      const int token = table_[place];
      if (token == kFree) return -1;
      if (token != kLost && slots_[token] == slot) return static_cast<int>(place);
    }
  }
  template <int kThreads>
  __device__ __forceinline__ void lose_to_later(const Cache& cache, const TokenTable& sizes,
                                                std::int64_t next) {
#pragma unroll 1
    for (std::int64_t i = next + threadIdx.x; i < cache.tokens; i += kSlots * kThreads) {
      std::int64_t slots[kSlots];
#pragma unroll
      for (int k = 0; k < kSlots; ++k) {
        const std::int64_t token = i + k * kThreads;
        slots[k] = token < cache.tokens ? cache.slots[token] : -1;
      }
#pragma unroll
      for (int k = 0; k < kSlots; ++k) {
        const std::uint32_t bit = hash(slots[k]) >> (32 - sizes.bits_log2);
        if ((bits_[bit / 32] >> bit % 32 & 1) == 0 || !cache.has(slots[k])) continue;
        const int place = find(sizes, slots[k]);
        if (place >= 0) table_[place] = kLost;  // whoever writes it
      }
    }
  }
  // The slots of all tokens but those that the table has become negative.
  template <int kThreads>
  __device__ __forceinline__ void drop(const TokenTable& sizes, int count) {
    static_assert(kMostTokens / kThreads <= 32);
    std::uint32_t dropped = 0;
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
    for (int i = thread, own = 0; i < count; i += kThreads, ++own) {
      if (slots_[i] < 0) continue;
      const int place = find(sizes, slots_[i]);
      if (place < 0 || table_[place] != i) dropped |= 1u << own;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = thread, own = 0; i < count; i += kThreads, ++own)
      if (dropped >> own & 1) slots_[i] = -1;
    __syncthreads();
  }

  std::int64_t* slots_ = nullptr;
  int* table_ = nullptr;
  std::uint32_t* bits_ = nullptr;
  std::int64_t slot_ = -1;
  bool is_many_ = false;
};

}  // namespace planq::kv_cache
