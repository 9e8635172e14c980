// estimate_quantiles on CUDA: a launch for each digit. Blocks count in shared memory and add their
// counts up with integer atomics, which are exact in any order; the block that finishes last then
// narrows the search, and leaves in the workspace what the next launch needs.
#pragma once

#include <cstdint>

#include "core/scratch.h"
#include "core/sku.h"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/lines.cuh"
#include "cuda/scan.cuh"
#include "cuda/ticket.cuh"
#include "ops/statistics/estimate_quantiles/prefixes.h"
#include "ops/statistics/quantiles.h"

namespace planq::estimate_quantiles {
namespace {

using cuda::kAllLanes;
using cuda::kPerVector;
using cuda::kWarp;
using In = cuda::Element;
using C = math::Compute<In>;
using Key = math::OrderKey<In>;
using Table = Prefixes<Key>;
using Count = unsigned long long;  // as atomics spell 64 bits

constexpr int kThreads = 512, kWarps = kThreads / kWarp;
// Of a multiprocessor; and vectors that a thread has under way.
constexpr int kBlocks = 2, kBatch = 4;
// Counters of a block have 32 bits. Shares are even up to rounding, far less than a factor of 4.
constexpr std::int64_t kMostOfBlock = std::int64_t{1} << 30;
constexpr int kPairs = kCounters / 2;
constexpr int kSharedBytes = kCounters * static_cast<int>(sizeof(std::uint32_t));
static_assert(kSharedBytes >= kPairs * static_cast<int>(sizeof(Count)));
static_assert(kMaxQuantiles <= kThreads && kPairs % kThreads == 0);

// What a pass leaves to the next one.
struct Wanted {
  Count ranks[kMaxQuantiles];  // of wanted elements, among those that the next pass counts
  Key keys[kMaxQuantiles];     // prefixes of the next pass
  std::uint32_t prefix_count;  // how many prefixes; 0: the result is NaN
  std::uint32_t done;          // blocks that have added up their counts
};

struct Memory {
  Count* counts;
  Wanted* wanted;
};

Memory book(Scratch& scratch) {
  Memory memory;
  memory.counts = scratch.take<Count>(kCounters);
  memory.wanted = scratch.take<Wanted>(1);
  return memory;
}

struct PassArgs {
  const In* input;
  C* output;
  cuda::LineWalk walk;
  Memory memory;
  Digit digit;
  std::int64_t elements, quantiles;
  double tail;
  bool propagate, is_last;
};

__global__ void __launch_bounds__(kThreads) clear(const __grid_constant__ Memory memory) {
  memory.counts[blockIdx.x * kThreads + threadIdx.x] = 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) memory.wanted->done = 0;
}

// --- Counting ----------------------------------------------------------------------------------

__device__ __forceinline__ void enter_prefixes(const Wanted& wanted, Table& table) {
  const std::uint32_t thread = threadIdx.x, prefix_count = wanted.prefix_count;
  for (int i = thread; i < Table::kPlaces; i += kThreads) table.places[i] = Table::kNone;
  if (thread < prefix_count) table.keys[thread] = wanted.keys[thread];
  __syncthreads();
  if (thread >= prefix_count) return;
  std::uint32_t place = Table::first_place(table.keys[thread]);
  while (atomicCAS(table.places + place, Table::kNone, thread) != Table::kNone)
    place = Table::next_place(place);
}

// Calls visit(element) for this block's share of the tensor.
template <class Visit>
__device__ __forceinline__ void each_of_block(const PassArgs& args, const Visit& visit) {
  const auto each = [&](const uint4(&v)[kBatch], const bool (&active)[kBatch]) {
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (!active[k]) continue;
      In x[kPerVector<In>];
      memcpy(x, v + k, sizeof x);
#pragma unroll
      for (int i = 0; i < kPerVector<In>; ++i) visit(x[i]);
    }
  };
  using cuda::ReadAgain;
  const std::int64_t part = blockIdx.x;
  const int rank = threadIdx.x;
  if (args.walk.is_short) {
    cuda::each_element<In, kThreads, kBatch, ReadAgain>(args.walk, args.input, part, rank, visit);
    return;
  }
  cuda::each_vector<In, kThreads, kBatch, false, ReadAgain>(args.walk, args.input, part, rank,
                                                            each);
  cuda::each_edge<In, kThreads, ReadAgain>(args.walk, args.input, part, rank, visit);
}

// --- Narrowing the search, by one block --------------------------------------------------------

// ends[i]: elements in the counters up to and including pair i.
__device__ __forceinline__ void sum_pairs(const Count* counts, Count* ends) {
  constexpr int kOfWarp = kPairs / kWarps;
  const int lane = threadIdx.x % kWarp, first = threadIdx.x / kWarp * kOfWarp + lane;
  Count total = 0;
#pragma unroll 4
  for (int i = first; i < first - lane + kOfWarp; i += kWarp) {
    const ulonglong2 pair = __ldcg(reinterpret_cast<const ulonglong2*>(counts) + i);
    const Count end = cuda::scan_lanes(pair.x + pair.y);
    ends[i] = total + end;
    total += __shfl_sync(kAllLanes, end, kWarp - 1);
  }
  const Count own = lane == kWarp - 1 ? total : 0;
  const Count start = cuda::sum_block<kThreads>(own).before;
  for (int i = first; i < first - lane + kOfWarp; i += kWarp) ends[i] += start;
  __syncthreads();
}

struct Counter {
  std::uint32_t index;
  Count before, held;  // elements in the counters before it, and in it
};

__device__ __forceinline__ Counter counter_of(const Count* counts, const Count* ends, Count rank) {
  int low = 0, high = kPairs - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (ends[middle] > rank)
      high = middle;
    else
      low = middle + 1;
  }
  const ulonglong2 pair = __ldcg(reinterpret_cast<const ulonglong2*>(counts) + low);
  const Count before = low == 0 ? 0 : ends[low - 1];
  if (rank < before + pair.x) return {2u * low, before, pair.x};
  return {2u * low + 1, before + pair.x, pair.y};
}

// The elements that count, and so have ranks; 0 if the result is NaN.
__device__ __forceinline__ Count counted_elements(const PassArgs& args) {
  const Count nans = __ldcg(args.memory.counts + kCounters - 1);
  return args.propagate && nans > 0 ? 0 : args.elements - nans;
}

// Finds the counter of every wanted element. The digits of those counters extend the prefixes of
// the next pass, and ranks become those among the elements with the same prefix.
template <bool kFirst>
__device__ __forceinline__ void narrow(const PassArgs& args, const Table& table, Count* ends) {
  __shared__ std::uint32_t found[kThreads];
  Wanted& wanted = *args.memory.wanted;
  const int own = threadIdx.x;
  const bool exists = own < args.quantiles;
  sum_pairs(args.memory.counts, ends);
  Count rank = 0;
  if (kFirst && exists)
    rank = math::quantile_position(own, args.quantiles, args.tail,
                                   static_cast<std::int64_t>(counted_elements(args)));
  if (!kFirst && exists) rank = wanted.ranks[own];
  const Counter at = counter_of(args.memory.counts, ends, rank);
  found[own] = at.index;
  __syncthreads();
  const bool opens = exists && (own == 0 || found[own - 1] != at.index);
  const Count prefix_count = cuda::sum_block<kThreads, Count>(opens).before + opens;
  const Count held = opens ? at.held : 0;
  const Count rank_of_prefix = cuda::sum_block<kThreads>(held).before + held - at.held;
  if (!exists) return;
  const int bits = args.digit.bits;
  Key key = at.index;
  if constexpr (!kFirst)
    key = table.keys[at.index >> bits] << bits | (at.index & ((1u << bits) - 1));
  if (args.is_last) {
    args.output[own] = math::value_of_order<In>(key);
    return;
  }
  if (opens) wanted.keys[prefix_count - 1] = key;
  wanted.ranks[own] = rank_of_prefix + (rank - at.before);
  if (own == args.quantiles - 1) wanted.prefix_count = static_cast<std::uint32_t>(prefix_count);
}

// Where the result is NaN: tells the next passes, and stores it in the last one.
__device__ __forceinline__ void give_up(const PassArgs& args) {
  if (threadIdx.x == 0) args.memory.wanted->prefix_count = 0;
  if (args.is_last && threadIdx.x < args.quantiles)
    args.output[threadIdx.x] = math::canonical_nan<C>();
}

template <bool kFirst>
__global__ void __launch_bounds__(kThreads, kBlocks)
    count_digits(const __grid_constant__ PassArgs args) {
  extern __shared__ Count shared[];
  auto* const counters = reinterpret_cast<std::uint32_t*>(shared);
  __shared__ Table table;
  Count* const counts = args.memory.counts;
  bool gives_up = !kFirst && args.memory.wanted->prefix_count == 0;
  for (int i = threadIdx.x; i < kCounters; i += kThreads) counters[i] = 0;
  if constexpr (!kFirst) enter_prefixes(*args.memory.wanted, table);
  __syncthreads();
  if (!gives_up)
    each_of_block(args, [&](In x) {
      const Key key = math::order_key(x);
      std::uint32_t prefix = 0;
      if constexpr (!kFirst) prefix = table.find(key >> args.digit.shift >> args.digit.bits);
      if (prefix != Table::kNone)
        atomicAdd(counters + (prefix << args.digit.bits | args.digit.of(key)), 1u);
    });
  __syncthreads();
  for (int i = threadIdx.x; i < kCounters; i += kThreads)
    if (counters[i] != 0) atomicAdd(counts + i, static_cast<Count>(counters[i]));
  if (!cuda::comes_last(&args.memory.wanted->done)) return;
  if constexpr (kFirst) gives_up = counted_elements(args) == 0;
  gives_up ? give_up(args) : narrow<kFirst>(args, table, shared);
  __syncthreads();
  for (int i = threadIdx.x; i < kCounters; i += kThreads) counts[i] = 0;
  if (threadIdx.x == 0) args.memory.wanted->done = 0;
}

// --- The kernel --------------------------------------------------------------------------------

struct Problem {
  Fields fields;
  std::int64_t multiprocessors;
};

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(cuda::preload(clear));
  PLANQ_TRY(cuda::preload(count_digits<true>, kSharedBytes));
  return cuda::preload(count_digits<false>, kSharedBytes);
}

// As many blocks as run at the same time, if there is a batch of vectors for each; more only where
// their counters would overflow.
std::int64_t blocks_of(const Problem& problem) {
  constexpr std::int64_t kElements = std::int64_t{kThreads} * kBatch * kPerVector<In>;
  const std::int64_t elements = problem.fields.shape.elements();
  const std::int64_t batches = std::max<std::int64_t>(1, elements / kElements);
  return std::max(std::min(problem.multiprocessors * kBlocks, batches),
                  elements / kMostOfBlock + 1);
}

PassArgs arguments(const Problem& problem, const Operands& operands, const Memory& memory,
                   std::int64_t blocks) {
  const Fields& f = problem.fields;
  PassArgs args{};
  args.input = static_cast<const In*>(operands[kInput].data);
  args.output = static_cast<C*>(operands[kOutput].data);
  args.memory = memory;
  args.elements = f.shape.elements();
  args.quantiles = f.quantiles;
  args.tail = f.tail;
  args.propagate = f.nonfinite == NonFinite::Propagate;
  args.walk.parts = blocks;
  const SegmentOperand input[kIndexSpaceOperands] = {{&operands[kInput]}};
  const Segments all = segments_of(f.shape, Scope{}, input, 0);
  args.walk.lines = all.lines;
  args.walk.line_count = all.line_count;
  args.walk.length = all.length;
  cuda::share_lines<In>(args.walk, kThreads, false);
  return args;
}

Status bind(const Call& call, Bound& bound) {
  const Problem problem = {call.fields<Fields>(), call.device.multiprocessors};
  Scratch scratch(call.workspace);
  const Memory memory = book(scratch);
  cuda::Grid grid{};
  grid.blocks = kCounters / kThreads;
  grid.threads = dim3(kThreads);
  PLANQ_TRY(cuda::launch(clear, grid, memory, bound));
  grid.blocks = blocks_of(problem);
  grid.shared_bytes = kSharedBytes;
  PassArgs args = arguments(problem, call.operands, memory, grid.blocks);
  args.digit = first_digit(cuda::kElement);
  PLANQ_TRY(cuda::launch(count_digits<true>, grid, args, bound));
  while (!args.digit.is_last()) {
    args.digit = next_digit(args.digit, args.quantiles);
    args.is_last = args.digit.is_last();
    PLANQ_TRY(cuda::launch(count_digits<false>, grid, args, bound));
  }
  return Status::success();
}

std::size_t workspace(const Descriptor&, const Device&) {
  Scratch scratch;
  book(scratch);
  return scratch.bytes();
}

constexpr Kernel kKernels[] = {{
    .op = "estimate_quantiles",
    .body = "radix",
    .dtypes = kDTypes<cuda::kElement, compute_dtype(cuda::kElement)>,
    .revision = 1,
    .backend = Backend::Cuda,
    .arch = {80, 9999},
    .rank = 0,
    .guarantee = guarantee<cuda::kElement>(),
    .rejects = rejects<cuda::kElement>,
    .workspace = workspace,
    .prepare = prepare,
    .bind = bind,
}};

}  // namespace

}  // namespace planq::estimate_quantiles
