// coo_to_csc on CUDA: a stable radix sort of the places of entries by the digits of their columns,
// the lowest first. For each digit blocks count their pieces of the list, sums of the counts say
// where each piece has the entries of a digit, and blocks put them there in their order. Places
// without an entry that takes part are sorted too: they come last.

#include <bit>

#include "core/scratch.h"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "ops/outlier/coo_to_csc/desc.h"
#include "ops/outlier/prefix.h"

namespace planq::coo_to_csc {
namespace {

using cuda::kAllLanes;
using cuda::kWarp;
using std::int32_t;
using std::int64_t;
using std::uint32_t;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
static_assert(kDigits == kThreads, "a thread has a digit");
// Entries of a block; more pieces than blocks are taken in turns.
constexpr int kPiece = 2048;
constexpr int64_t kBlocks = 1 << 16;

struct List {
  const int32_t *row_index, *column_index;
  const void* value;
  const int64_t* count;
  int64_t capacity;
  uint32_t last_key;
};

__device__ __forceinline__ uint32_t key_at(const List& list, int64_t entries, int64_t place) {
  return place < entries ? key_of(list.column_index[place], list.last_key) : list.last_key;
}

// One digit. Null `from`: the order of the list.
struct DigitArgs {
  List list;
  const int32_t* from;
  int32_t* to;
  int shift;
  int64_t pieces;
  outlier::Prefix prefix;  // of [digit][piece]
};

__device__ __forceinline__ int64_t place_at(const DigitArgs& args, int64_t i) {
  return args.from ? args.from[i] : i;
}
__device__ __forceinline__ int digit_at(const DigitArgs& args, int64_t entries, int64_t place) {
  return static_cast<int>(key_at(args.list, entries, place) >> args.shift & (kDigits - 1));
}

__global__ void __launch_bounds__(kThreads) count_digits(const __grid_constant__ DigitArgs args) {
  __shared__ int32_t counts[kDigits];
  const int64_t entries = outlier::kept_entries(*args.list.count, args.list.capacity);
  for (int64_t piece = blockIdx.x; piece < args.pieces; piece += gridDim.x) {
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < kPiece; i += kThreads) {
      const int64_t own = piece * kPiece + i;
      if (own < args.list.capacity)
        atomicAdd(counts + digit_at(args, entries, place_at(args, own)), 1);
    }
    __syncthreads();
    args.prefix.counts[threadIdx.x * args.pieces + piece] = counts[threadIdx.x];
    // The next piece's zero of this thread comes behind its own reading.
  }
}

// A piece is put in order step by step, an entry a thread. Among the entries of a digit, those of
// earlier steps come first, then those of earlier warps, then those of earlier lanes.
__global__ void __launch_bounds__(kThreads) move_digits(const __grid_constant__ DigitArgs args) {
  __shared__ int32_t of_warps[kWarps][kDigits];
  __shared__ int64_t next[kDigits];
  const int64_t entries = outlier::kept_entries(*args.list.count, args.list.capacity);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int64_t piece = blockIdx.x; piece < args.pieces; piece += gridDim.x) {
    next[threadIdx.x] = args.prefix.before[threadIdx.x * args.pieces + piece];
    for (int step = 0; step < kPiece; step += kThreads) {
      const int64_t own = piece * kPiece + step + threadIdx.x;
      const bool exists = own < args.list.capacity;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) of_warps[i][threadIdx.x] = 0;
      __syncthreads();
      const int64_t place = exists ? place_at(args, own) : 0;
      const int digit = exists ? digit_at(args, entries, place) : kDigits;
      const unsigned alike = __match_any_sync(kAllLanes, digit);
      const int rank = __popc(alike & ((1u << lane) - 1));
      if (exists && rank == 0) of_warps[warp][digit] = __popc(alike);
      __syncthreads();
      // Counts of a digit become places, warp by warp.
      int64_t before = next[threadIdx.x];
      int32_t sum = 0;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) {
        const int32_t count = of_warps[i][threadIdx.x];
        of_warps[i][threadIdx.x] = sum;
        sum += count;
      }
      __syncthreads();
      if (exists) args.to[next[digit] + of_warps[warp][digit] + rank] = static_cast<int32_t>(place);
      __syncthreads();
      next[threadIdx.x] = before + sum;
    }
  }
}

// What is written from the sorted places.
struct GatherArgs {
  List list;
  const int32_t* places;
  int32_t *pointer, *row_index;
  void* value;
  int64_t pointers;
};

template <class Value>
__global__ void __launch_bounds__(kThreads) gather(const __grid_constant__ GatherArgs args) {
  const int64_t entries = outlier::kept_entries(*args.list.count, args.list.capacity);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = first; i < args.list.capacity; i += stride) {
    const int32_t place = args.places[i];
    const bool exists = key_at(args.list, entries, place) != args.list.last_key;
    args.row_index[i] = exists ? args.list.row_index[place] : outlier::kNoIndex;
    static_cast<Value*>(args.value)[i] =
        exists ? static_cast<const Value*>(args.list.value)[place] : Value{0};
  }
  const auto column = [&](int64_t i) -> int64_t {
    return key_at(args.list, entries, args.places[i]);
  };
  for (int64_t i = first; i < args.pointers; i += stride) {
    // The last key stands for all columns from there on.
    const int64_t bound = i < args.list.last_key ? i : args.list.last_key;
    args.pointer[i] = static_cast<int32_t>(outlier::count_below(column, args.list.capacity, bound));
  }
}

struct Memory {
  int32_t* places[2];
  outlier::Prefix prefix;
};

int64_t pieces_of(const Fields& f) { return cuda::ceil_div(f.capacity, kPiece); }

Memory book(Scratch& scratch, const Fields& f) {
  Memory memory;
  for (int32_t*& places : memory.places)
    places = scratch.take<int32_t>(static_cast<std::size_t>(f.capacity));
  memory.prefix = outlier::book_prefix(scratch, pieces_of(f) * kDigits);
  return memory;
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch scratch;
  book(scratch, descriptor.as<Fields>());
  return scratch.bytes();
}

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(cuda::preload(count_digits));
  PLANQ_TRY(cuda::preload(move_digits));
  PLANQ_TRY(cuda::preload(gather<std::uint16_t>));
  PLANQ_TRY(cuda::preload(gather<uint32_t>));
  return outlier::preload_prefix();
}

template <class E>
E* operand(const Call& call, Operand which) {
  return static_cast<E*>(call.operands[which].data);
}

List list_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  return {operand<int32_t>(call, kRowIndex),
          operand<int32_t>(call, kColumnIndex),
          operand<void>(call, kValue),
          operand<int64_t>(call, kCount),
          f.capacity,
          last_key(f)};
}

// Leaves the sorted places in memory.places[0].
Status sort(const List& list, Memory& memory, int64_t pieces, Bound& bound) {
  DigitArgs args{};
  args.list = list;
  args.pieces = pieces;
  args.prefix = memory.prefix;
  cuda::Grid grid{};
  grid.blocks = std::min(pieces, kBlocks);
  grid.threads = dim3(kThreads);
  // A matrix without columns has keys all the same, and their places are still written once.
  const int bits = std::max<int>(std::bit_width(list.last_key), 1);
  for (; args.shift < bits; args.shift += kDigitBits) {
    args.to = memory.places[1];
    PLANQ_TRY(cuda::launch(count_digits, grid, args, bound));
    PLANQ_TRY(outlier::launch_prefix(memory.prefix, pieces * kDigits, nullptr, bound));
    PLANQ_TRY(cuda::launch(move_digits, grid, args, bound));
    std::swap(memory.places[0], memory.places[1]);
    args.from = memory.places[0];
  }
  return Status::success();
}

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  Scratch scratch(call.workspace);
  Memory memory = book(scratch, f);
  GatherArgs args{};
  args.list = list_of(call);
  if (f.capacity > 0) PLANQ_TRY(sort(args.list, memory, pieces_of(f), bound));
  args.places = memory.places[0];
  args.pointer = operand<int32_t>(call, kPointer);
  args.row_index = operand<int32_t>(call, kOutputRowIndex);
  args.value = operand<void>(call, kOutputValue);
  args.pointers = f.shape.last() + 1;
  cuda::Grid grid{};
  grid.blocks = std::min(cuda::ceil_div(std::max(f.capacity, args.pointers), kThreads), kBlocks);
  grid.threads = dim3(kThreads);
  const bool two = storage_bytes(f.value_dtype) == 2;
  return cuda::launch(two ? gather<std::uint16_t> : gather<uint32_t>, grid, args, bound);
}

constexpr Kernel kKernels[] = {{.op = "coo_to_csc",
                                .method = "radix_sort",
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {80},
                                .rank = 0,
                                .guarantee = kGuarantee,
                                .rejects = accept,
                                .workspace = workspace,
                                .prepare = prepare,
                                .bind = bind}};

}  // namespace
}  // namespace planq::coo_to_csc

PLANQ_KERNELS(coo_to_csc, cuda, kKernels);
