// A stable sort on CUDA by keys of at most 32 bits, a digit of 8 bits a pass, the lowest first. In
// a pass blocks count the digits of a tile each, sums of the counts say where each tile has the
// items of a digit (cuda/prefix.h), and blocks put them there in their order. Nothing depends on
// which block or warp comes first.
//
// A list of items is a struct with
//   kEach             items of a thread; a tile is kSortThreads times as many
//   Item              what a thread keeps of one, with its `key`
//   reader()          what items are read with, made once by each thread:
//     .key(i)         the key of item i alone
//     .item(i)        the item
//   store(i, item)    writes it
#pragma once

#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/prefix.h"

namespace planq::cuda {

inline constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
inline constexpr int kSortThreads = 256, kSortWarps = kSortThreads / kWarp;
static_assert(kDigits == kSortThreads, "a thread has a digit");

template <class List>
std::int64_t sort_tiles(std::int64_t count) {
  return ceil_div(count, List::kEach * kSortThreads);
}
// The sums that a pass over so many items needs.
template <class List>
Prefix book_sort(Scratch& scratch, std::int64_t count) {
  return book_prefix(scratch, sort_tiles<List>(count) * kDigits);
}

template <class List>
struct DigitArgs {
  List from, to;
  Prefix digits;  // of each digit, the counts of all tiles
  std::int64_t count, tiles;
  int shift;

  __device__ __forceinline__ int digit(std::uint32_t key) const {
    return static_cast<int>(key >> shift & (kDigits - 1));
  }
};

template <class List>
__global__ void __launch_bounds__(kSortThreads)
    count_digits(const __grid_constant__ DigitArgs<List> args) {
  __shared__ std::int32_t counts[kDigits];
  counts[threadIdx.x] = 0;
  __syncthreads();
  const auto reader = args.from.reader();
  const std::int64_t first = std::int64_t{blockIdx.x} * (List::kEach * kSortThreads) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < List::kEach; ++k) {
    const std::int64_t i = first + k * kSortThreads;
    if (i < args.count) atomicAdd(counts + args.digit(reader.key(i)), 1);
  }
  __syncthreads();
  args.digits.counts[threadIdx.x * args.tiles + blockIdx.x] = counts[threadIdx.x];
}

// The items of a warp, which follow one another, with their places among those of their digit.
template <class List>
struct PlacedItems {
  typename List::Item items[List::kEach];
  std::int32_t places[List::kEach];

  // `counts`: of each digit, those of the warp so far.
  __device__ __forceinline__ void load(const DigitArgs<List>& args, std::int64_t first,
                                       std::int32_t* counts) {
    const unsigned lane = threadIdx.x % kWarp;
    const auto reader = args.from.reader();
#pragma unroll
    for (int k = 0; k < List::kEach; ++k) {
      const std::int64_t i = first + k * kWarp + lane;
      const bool exists = i < args.count;
      items[k] = exists ? reader.item(i) : typename List::Item{};
      const int digit = exists ? args.digit(items[k].key) : kDigits;
      const unsigned alike = __match_any_sync(kAllLanes, digit);
      const int before = __popc(alike & ((1u << lane) - 1));
      const std::int32_t held = exists ? counts[digit] : 0;
      __syncwarp();  // every lane has read what the first one writes
      if (exists && before == 0) counts[digit] = held + __popc(alike);
      __syncwarp();
      places[k] = held + before;
    }
  }
  __device__ __forceinline__ void store(const DigitArgs<List>& args, std::int64_t first,
                                        const std::int32_t* counts,
                                        const std::int64_t* starts) const {
#pragma unroll
    for (int k = 0; k < List::kEach; ++k) {
      if (first + k * kWarp + threadIdx.x % kWarp >= args.count) continue;
      const int digit = args.digit(items[k].key);
      args.to.store(starts[digit] + counts[digit] + places[k], items[k]);
    }
  }
};

template <class List>
__global__ void __launch_bounds__(kSortThreads)
    place_digits(const __grid_constant__ DigitArgs<List> args) {
  __shared__ std::int32_t counts[kSortWarps][kDigits];
  __shared__ std::int64_t starts[kDigits];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int w = 0; w < kSortWarps; ++w) counts[w][threadIdx.x] = 0;
  __syncthreads();
  constexpr int kOfWarp = List::kEach * kWarp;
  const std::int64_t first = std::int64_t{blockIdx.x} * (kOfWarp * kSortWarps) + warp * kOfWarp;
  PlacedItems<List> placed;
  placed.load(args, first, counts[warp]);
  __syncthreads();
  starts[threadIdx.x] = args.digits.before[threadIdx.x * args.tiles + blockIdx.x];
  std::int32_t before = 0;  // of this thread's digit, in the warps before
#pragma unroll
  for (int w = 0; w < kSortWarps; ++w) {
    const std::int32_t own = counts[w][threadIdx.x];
    counts[w][threadIdx.x] = before;
    before += own;
  }
  __syncthreads();
  placed.store(args, first, counts[warp], starts);
}

template <class List>
Status preload_sort() {
  PLANQ_TRY(preload(count_digits<List>));
  PLANQ_TRY(preload(place_digits<List>));
  return preload_prefix();
}

// One pass, by the digit whose bits begin at `shift`. There is an item at least.
template <class List>
Status sort_by_digit(const List& from, const List& to, const Prefix& digits, std::int64_t count,
                     int shift, Bound& bound) {
  const DigitArgs<List> args = {from, to, digits, count, sort_tiles<List>(count), shift};
  const Grid grid = {.blocks = args.tiles, .threads = dim3(kSortThreads)};
  PLANQ_TRY(launch(count_digits<List>, grid, args, bound));
  PLANQ_TRY(launch_prefix(digits, args.tiles * kDigits, nullptr, bound));
  return launch(place_digits<List>, grid, args, bound);
}

}  // namespace planq::cuda
