// moe_permute on CUDA: blocks that read a row of a token once and write it to the rows of all its
// pairs. Of a few pairs, each block compares those of its own tokens with all others, so that there
// is one launch. Of more, launches before count the pairs of each expert in chunks. All counts are
// of integers, so nothing depends on which block comes first.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/scratch.h"
#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/prefix.h"
#include "cuda/row_share.cuh"
#include "ops/routing/moe_permute/desc.h"

namespace planq::moe_permute {
namespace {

using cuda::kAllLanes;
using cuda::kWarp;
using std::int32_t;
using std::int64_t;
using std::uint32_t;

constexpr int kThreads = cuda::RowShare::kThreads, kRows = cuda::RowShare::kRows;
// Ranks whose rows are found at a time, and the words of a row that a thread has under way.
constexpr int kRanks = 32, kEach = 4;

// The experts of all pairs. A pair's number is token * top_k + rank.
struct Pairs {
  const int32_t* expert_index;
  int64_t stride;  // from token to token
  int64_t count;
  uint32_t experts;
  cuda::Divider top_k;

  __device__ __forceinline__ uint32_t key(int64_t pair) const {
    const auto own = static_cast<uint32_t>(pair);
    const uint32_t token = top_k.quotient(own);
    return key_of(expert_index[token * stride + (own - token * top_k.divisor)], experts);
  }
};

// --- Rows of few pairs -------------------------------------------------------------------------

// Pairs are sorted by their keys, then by their numbers: a pair's row is how many come before it.
struct Compared {
  static constexpr int kMost = 2048;
  static constexpr int kLanes = kWarp;  // that find a row together
  struct Shared {
    uint32_t keys[kMost];
  };

  __device__ __forceinline__ void begin(const Pairs& pairs, Shared& shared) const {
    for (int64_t pair = threadIdx.x; pair < pairs.count; pair += kThreads)
      shared.keys[pair] = pairs.key(pair);
    __syncthreads();
  }
  __device__ __forceinline__ uint32_t key(const Pairs&, const Shared& shared, int64_t pair) const {
    return shared.keys[pair];
  }
  __device__ __forceinline__ int64_t row(const Pairs& pairs, const Shared& shared, uint32_t key,
                                         int64_t pair) const {
    return count(pairs, shared, key, pair);
  }
  __device__ __forceinline__ int64_t rows_before(const Pairs& pairs, const Shared& shared,
                                                 uint32_t key) const {
    return count(pairs, shared, key, 0);
  }

 private:
  // Pairs with smaller keys, and those with this key before `end`.
  static __device__ __forceinline__ int count(const Pairs& pairs, const Shared& shared,
                                              uint32_t key, int64_t end) {
    int own = 0;
    for (int64_t i = threadIdx.x % kWarp; i < pairs.count; i += kWarp)
      own += shared.keys[i] < key || (shared.keys[i] == key && i < end);
    return __reduce_add_sync(kAllLanes, own);
  }
};

// --- Rows of many pairs ------------------------------------------------------------------------

// A block counts the pairs of a chunk, a thread each.
struct Chunks {
  cuda::Prefix keys;  // of each key, the counts of all chunks
  int32_t* earlier;   // of each pair: those with its key before it in its chunk
  int64_t count;

  Chunks(const Fields& f, Scratch& scratch) {
    const int64_t pairs = f.input_shape[0] * f.top_k;
    count = std::max<int64_t>(cuda::ceil_div(pairs, kThreads), 1);
    keys = cuda::book_prefix(scratch, counts(f));
    earlier = scratch.take<int32_t>(static_cast<std::size_t>(pairs));
  }
  int64_t counts(const Fields& f) const { return (f.experts + 1) * count; }
};

struct CountArgs {
  Pairs pairs;
  Chunks chunks;
};

__global__ void __launch_bounds__(kThreads) count_keys(const __grid_constant__ CountArgs args) {
  __shared__ uint32_t keys[kThreads];
  const Pairs& pairs = args.pairs;
  const Chunks& chunks = args.chunks;
  const int64_t pair = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool exists = pair < pairs.count;
  const uint32_t own = exists ? pairs.key(pair) : pairs.experts + 1;
  keys[threadIdx.x] = own;
  for (uint32_t key = threadIdx.x; key <= pairs.experts; key += kThreads)
    chunks.keys.counts[key * chunks.count + blockIdx.x] = 0;
  __syncthreads();
  if (!exists) return;
  int alike = 0, earlier = 0;
#pragma unroll 8
  for (unsigned i = 0; i < kThreads; ++i) {
    alike += keys[i] == own;
    earlier += keys[i] == own && i < threadIdx.x;
  }
  chunks.earlier[pair] = earlier;
  if (earlier == 0) chunks.keys.counts[own * chunks.count + blockIdx.x] = alike;
}

// The same questions, answered by the counts.
struct Counted {
  static constexpr int kLanes = 1;
  struct Shared {};
  const int64_t* before;
  const int32_t* earlier;
  int64_t chunks;

  __device__ __forceinline__ void begin(const Pairs&, Shared&) const {}
  __device__ __forceinline__ uint32_t key(const Pairs& pairs, const Shared&, int64_t pair) const {
    return pairs.key(pair);
  }
  __device__ __forceinline__ int64_t row(const Pairs&, const Shared&, uint32_t key,
                                         int64_t pair) const {
    return before[key * chunks + pair / kThreads] + earlier[pair];
  }
  __device__ __forceinline__ int64_t rows_before(const Pairs&, const Shared&, uint32_t key) const {
    return before[key * chunks];
  }
};

// --- Moving rows -------------------------------------------------------------------------------

// Rows are cut into words; offsets and strides of input and output count them.
template <class Order>
struct MoveArgs {
  Pairs pairs;
  Order order;
  cuda::RowShare share;  // of the tokens
  const void* input;
  void* output;
  int64_t input_stride;
  routing::PairRows outputs, scales;
  const uint32_t* scale;  // bits that are moved; null: there are none
  uint32_t* permuted_scale;
  int32_t *expert_offset, *destination;
  int64_t destination_stride;
  int top_k;
};

template <class Order>
__device__ __forceinline__ void write_expert_offsets(const MoveArgs<Order>& args,
                                                     const typename Order::Shared& shared) {
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / Order::kLanes;
  const int64_t step = int64_t{gridDim.x} * kThreads / Order::kLanes;
  for (int64_t key = first; key <= args.pairs.experts; key += step) {
    const int64_t before = args.order.rows_before(args.pairs, shared, static_cast<uint32_t>(key));
    if (threadIdx.x % Order::kLanes == 0) args.expert_offset[key] = static_cast<int32_t>(before);
  }
}

// Where a pair's row is in the output. Pairs without an expert clear one each of those that are
// left.
struct RowPlace {
  int64_t offset;
  bool is_cleared;
};

template <class Order>
__device__ __forceinline__ RowPlace settle(const MoveArgs<Order>& args, int64_t token, int rank,
                                           int64_t row, bool has_expert) {
  if (args.share.slice() == 0) {
    args.destination[token * args.destination_stride + rank] =
        has_expert ? static_cast<int32_t>(row) : routing::kNoRow;
    if (args.scale)
      args.permuted_scale[args.scales.offset(row)] = has_expert ? args.scale[token] : 0;
  }
  return {args.outputs.offset(row), !has_expert};
}

// Finds the rows of some ranks of all tokens of the block.
template <class Order>
__device__ __forceinline__ void find_rows(const MoveArgs<Order>& args,
                                          const typename Order::Shared& shared, int first,
                                          int ranks, RowPlace (&places)[kRows][kRanks]) {
  const int all = args.share.rows_of_block() * ranks;
  for (int i = static_cast<int>(threadIdx.x) / Order::kLanes; i < all;
       i += kThreads / Order::kLanes) {
    const int own = i / ranks, rank = i - own * ranks;
    const int64_t token = args.share.first_row() + own;
    if (token >= args.share.rows) break;
    const int64_t pair = token * args.top_k + first + rank;
    const uint32_t key = args.order.key(args.pairs, shared, pair);
    const int64_t row = args.order.row(args.pairs, shared, key, pair);
    if (threadIdx.x % Order::kLanes == 0)
      places[own][rank] = settle(args, token, first + rank, row, key != args.pairs.experts);
  }
}

// Some words of a token's row.
template <class Word>
struct Words {
  Word held[kEach];

  template <class Order>
  __device__ __forceinline__ void load(const MoveArgs<Order>& args, int64_t token, int64_t first) {
    const Word* const from = static_cast<const Word*>(args.input) + token * args.input_stride;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t at = first + i * args.share.step();
      if (at < args.share.units) held[i] = from[at];
    }
  }
  template <class Order>
  __device__ __forceinline__ void store(const MoveArgs<Order>& args, const RowPlace& place,
                                        int64_t first) const {
    Word* const to = static_cast<Word*>(args.output) + place.offset;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t at = first + i * args.share.step();
      if (at < args.share.units) to[at] = place.is_cleared ? Word{} : held[i];
    }
  }
};

template <class Word, class Order>
__global__ void __launch_bounds__(kThreads)
    move_rows(const __grid_constant__ MoveArgs<Order> args) {
  __shared__ typename Order::Shared shared;
  __shared__ RowPlace places[kRows][kRanks];
  const int own = args.share.own_row();
  const int64_t token = args.share.first_row() + own, start = args.share.first_unit();
  const int64_t units = token < args.share.rows ? args.share.units : 0;
  Words<Word> words;
  if (start < units) words.load(args, token, start);  // under way while rows are found
  args.order.begin(args.pairs, shared);
  write_expert_offsets(args, shared);
#pragma unroll 1
  for (int first = 0; first < args.top_k; first += kRanks) {
    const int ranks = args.top_k - first < kRanks ? args.top_k - first : kRanks;
    find_rows(args, shared, first, ranks, places);
    __syncthreads();
#pragma unroll 1
    for (int64_t unit = start; unit < units; unit += kEach * args.share.step()) {
      if (first > 0 || unit > start) words.load(args, token, unit);
#pragma unroll 1
      for (int rank = 0; rank < ranks; ++rank) words.store(args, places[own][rank], unit);
    }
    __syncthreads();  // the places have been read
  }
}

// --- Launches ----------------------------------------------------------------------------------

// The largest words that rows of input and output can be cut into.
int word_bytes(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const OperandView &input = call.operands[kInput], &output = call.operands[kOutput];
  const int64_t size = storage_bytes(f.input_dtype);
  const std::uint64_t all = reinterpret_cast<std::uintptr_t>(input.data) |
                            reinterpret_cast<std::uintptr_t>(output.data) |
                            static_cast<std::uint64_t>(f.input_shape[1] * size) |
                            static_cast<std::uint64_t>(input.strides[0] * size) |
                            static_cast<std::uint64_t>(output.strides[0] * size) |
                            static_cast<std::uint64_t>(output.strides[1] * size);
  return all % cuda::kVectorBytes == 0 ? cuda::kVectorBytes : static_cast<int>(all & -all);
}

Pairs pairs_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const OperandView& index = call.operands[kExpertIndex];
  return {static_cast<const int32_t*>(index.data), index.strides[0], f.input_shape[0] * f.top_k,
          static_cast<uint32_t>(f.experts), cuda::Divider(static_cast<uint32_t>(f.top_k))};
}

template <class Word, class Order>
Status launch_words(const Call& call, const Order& order, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& given = call.operands;
  const int64_t size = storage_bytes(f.input_dtype), bytes = sizeof(Word);
  const int64_t elements = bytes / size;
  const cuda::RowShare share(f.input_shape[0], f.input_shape[1] / elements, kEach, call.device);
  const MoveArgs<Order> args = {pairs_of(call),
                                order,
                                share,
                                given[kInput].data,
                                given[kOutput].data,
                                given[kInput].strides[0] / elements,
                                routing::PairRows(f.top_k, given[kOutput], elements),
                                routing::PairRows(f.top_k, given[kPermutedScale], 1),
                                static_cast<const uint32_t*>(given[kScale].data),
                                static_cast<uint32_t*>(given[kPermutedScale].data),
                                static_cast<int32_t*>(given[kExpertOffset].data),
                                static_cast<int32_t*>(given[kDestination].data),
                                given[kDestination].strides[0],
                                static_cast<int>(f.top_k)};
  return cuda::launch(move_rows<Word, Order>, share.grid(), args, bound);
}

template <class Order>
Status launch_moves(const Call& call, const Order& order, Bound& bound) {
  switch (word_bytes(call)) {
    case 1:
      return launch_words<std::uint8_t>(call, order, bound);
    case 2:
      return launch_words<std::uint16_t>(call, order, bound);
    case 4:
      return launch_words<uint32_t>(call, order, bound);
    case 8:
      return launch_words<uint2>(call, order, bound);
    default:
      return launch_words<uint4>(call, order, bound);
  }
}

template <class Order>
Status preload_moves() {
  PLANQ_TRY((cuda::preload(move_rows<std::uint8_t, Order>)));
  PLANQ_TRY((cuda::preload(move_rows<std::uint16_t, Order>)));
  PLANQ_TRY((cuda::preload(move_rows<uint32_t, Order>)));
  PLANQ_TRY((cuda::preload(move_rows<uint2, Order>)));
  return cuda::preload(move_rows<uint4, Order>);
}

Reason rejects_many(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  if (f.input_shape[0] * f.top_k <= Compared::kMost) return Reason::accept();
  return Reason::refuse(ReasonKind::Shape, "takes at most ", int64_t{Compared::kMost},
                        " pairs of a token and a rank");
}
Status prepare_compared(const Descriptor&, const Device&, State&) {
  return preload_moves<Compared>();
}
Status bind_compared(const Call& call, Bound& bound) {
  return launch_moves(call, Compared{}, bound);
}

Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }
std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch counting;
  Chunks(descriptor.as<Fields>(), counting);
  return counting.bytes();
}
Status prepare_counted(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(cuda::preload(count_keys));
  PLANQ_TRY(cuda::preload_prefix());
  return preload_moves<Counted>();
}
Status bind_counted(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  Scratch scratch(call.workspace);
  const Chunks chunks(f, scratch);
  const CountArgs args = {pairs_of(call), chunks};
  const cuda::Grid grid = {.blocks = chunks.count, .threads = dim3(kThreads)};
  PLANQ_TRY(cuda::launch(count_keys, grid, args, bound));
  PLANQ_TRY(cuda::launch_prefix(chunks.keys, chunks.counts(f), nullptr, bound));
  return launch_moves(call, Counted{chunks.keys.before, chunks.earlier, chunks.count}, bound);
}

constexpr Kernel kKernels[] = {{.op = "moe_permute",
                                .body = "compared",
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {80, kLastArch},
                                .rank = 0,
                                .guarantee = kGuarantee,
                                .rejects = rejects_many,
                                .workspace = no_workspace,
                                .prepare = prepare_compared,
                                .bind = bind_compared},
                               {.op = "moe_permute",
                                .body = "counted",
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {80, kLastArch},
                                .rank = 1,
                                .guarantee = kGuarantee,
                                .rejects = accept,
                                .workspace = workspace,
                                .prepare = prepare_counted,
                                .bind = bind_counted}};

}  // namespace
}  // namespace planq::moe_permute

PLANQ_KERNELS(moe_permute, cuda, kKernels);
