// Products of 8-bit matrices on the tensor cores of sm_90a: d[x, y] = sum over k of first[x, k] *
// second[y, k], in int32, then an epilogue. Integer sums modulo 2^32 are the same in any order, so
// every kernel here gives the same bits, whatever its tiles and however it splits k.
//
// Two kernels. `multiply_tiles` is for many rows on both sides: a block computes tile after tile;
// four of its warps copy boxes of both factors into a ring of stages, eight multiply.
// `multiply_streamed` is for few rows of tokens, where the weights' bytes are the time: weights are
// the first factor, and the blocks of a cluster split k.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/mbarrier.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/tensor_map.cuh"
#include "cuda/wgmma.cuh"
#include "ops/linear/wgmma_output.cuh"

namespace planq::linear::wgmma {

struct Factors {
  cuda::TensorMap first, second;
  // What a batch adds to the third coordinate: 0 where all batches share a factor.
  int first_step, second_step;
  int k_boxes;  // at least 1
  int first_unsigned, second_unsigned;
  int waits;  // for the kernel before, which may still be writing what is read here
};

inline constexpr int kGroupThreads = 128;  // that multiply together
inline constexpr int kGroupWarps = kGroupThreads / cuda::kWarp;
inline constexpr int kWarpRows = 16;  // of a group's 64

// Calls body<first unsigned, second unsigned>().
template <class Body>
__device__ __forceinline__ void with_types(const Factors& factors, const Body& body) {
  if (!factors.first_unsigned)
    factors.second_unsigned ? body.template operator()<false, true>()
                            : body.template operator()<false, false>();
  else
    factors.second_unsigned ? body.template operator()<true, true>()
                            : body.template operator()<true, false>();
}

// --- The ring of stages
// ------------------------------------------------------------------------------

// A stage holds a box of 128 bytes along k of both factors. kFirst and kSecond are their rows.
template <int kFirst, int kSecond, int kStages>
struct Ring {
  static constexpr int kCount = kStages;
  static constexpr int kFirstBytes = kFirst * cuda::kBoxBytes;
  static constexpr int kStageBytes = kFirstBytes + kSecond * cuda::kBoxBytes;
  static constexpr int kBytes = kStages * kStageBytes;
  using Cursor = cuda::StageCursor<kStages>;

  std::uint8_t* stages;  // aligned to 1024 bytes, as the swizzle wants it
  cuda::Barrier* full;
  cuda::Barrier* empty;

  __device__ __forceinline__ std::uint8_t* first(int stage) const {
    return stages + stage * kStageBytes;
  }
  __device__ __forceinline__ std::uint8_t* second(int stage) const {
    return first(stage) + kFirstBytes;
  }
  // By one thread. `releases`: arrivals that free a stage.
  __device__ __forceinline__ void open(int releases) const {
    for (int i = 0; i < kStages; ++i) {
      full[i].init(1);
      empty[i].init(releases);
    }
    cuda::publish_barriers();
  }
};

// kTiles x 64 rows of the first factor, from `row` on, with all of the second, over `boxes` stages
// from the cursor on. The sums begin at 0. Every warp gives a stage back to all `blocks`
// of the cluster, which copy into it. `issued()` is called once the last product is under way.
template <bool kFirstUnsigned, bool kSecondUnsigned, int kTiles, int kSecond, class Ring,
          class Issued>
__device__ __forceinline__ void sum_stages(int (&sums)[kTiles][kSecond / 2], const Ring& ring,
                                           typename Ring::Cursor& cursor, int boxes, int row,
                                           int blocks, const Issued& issued) {
  const int lane = threadIdx.x % cuda::kWarp;
  const auto release = [&](int stage) {
    if (blocks == 1) {
      if (lane == 0) ring.empty[stage].arrive();
    } else if (lane < blocks) {
      ring.empty[stage].arrive_at(lane);
    }
  };
  const std::uint64_t first_factor =
      cuda::factor_of(cuda::shared_address(ring.first(0)) + row * cuda::kBoxBytes);
  const std::uint64_t second_factor = cuda::factor_of(cuda::shared_address(ring.second(0)));
  int add = 0, previous = -1;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
#pragma unroll 1
  for (int box = 0; box < boxes; ++box) {
    ring.full[cursor.stage].wait(cursor.parity);
    const std::uint64_t first = cuda::advanced(first_factor, cursor.stage * Ring::kStageBytes);
    const std::uint64_t second = cuda::advanced(second_factor, cursor.stage * Ring::kStageBytes);
    cuda::begin_products();
#pragma unroll
    for (int byte = 0; byte < cuda::kBoxBytes; byte += cuda::kProductDepth) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        cuda::add_product<kFirstUnsigned, kSecondUnsigned, kSecond>(
            sums[tile], cuda::advanced(first, byte + tile * cuda::kProductRows * cuda::kBoxBytes),
            cuda::advanced(second, byte), byte > 0 ? 1 : add);
    }
    cuda::commit_products();
    add = 1;
    // The products of the stage before are done, those of this one go on.
    cuda::wait_for_products<1>();
    if (previous >= 0) release(previous);
    previous = cursor.stage;
    cursor.advance();
  }
  issued();
  cuda::wait_for_products<0>();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
  if (previous >= 0) release(previous);
}

// --- Many rows on both sides
// -----------------------------------------------------------------------

struct TileArgs {
  Factors factors;
  Outputs outputs;
  // Blocks of a cluster, below each other: they share the second factor's rows.
  int cluster;
  // Tiles are numbered by cluster: `across` of them along the columns, `down` along the rows, in
  // bands of `band` along the rows, so that what runs at a time shares rows and columns in the L2
  // cache.
  int down, across, band;
  std::uint32_t count;  // of all batches, below 2^31
};

__device__ __forceinline__ std::uint32_t clusters_of(const TileArgs& args) {
  return gridDim.x / args.cluster;
}

struct TilePlace {
  int down, across, batch;
};
__device__ __forceinline__ TilePlace tile_place(const TileArgs& args, std::uint32_t index) {
  const auto area = static_cast<std::uint32_t>(args.down) * static_cast<std::uint32_t>(args.across);
  const auto batch = static_cast<int>(index / area);
  const auto inside = index - static_cast<std::uint32_t>(batch) * area;
  const auto full = static_cast<std::uint32_t>(args.band) * static_cast<std::uint32_t>(args.across);
  const int top = static_cast<int>(inside / full) * args.band;
  const int height = min(args.band, args.down - top);
  const auto rest = static_cast<int>(inside % full);
  return {top + rest % height, rest / height, batch};
}

inline constexpr int kTileRows = 128;
inline constexpr int kTileThreads = 3 * kGroupThreads;
// What a warp puts its sums through, so that its lanes have four neighbouring columns: eight rows
// of 128 columns, padded so that neither side meets a bank twice.
inline constexpr int kPassRows = 8, kPassColumns = 128, kPassPitch = kPassColumns + 8;
inline constexpr int kPassBytes = kPassRows * kPassPitch * static_cast<int>(sizeof(int));

template <int kColumns>
struct TileShape {
  // Both groups share a tile, each with 64 of its rows; or each has tiles of its own, and one's
  // epilogue runs while the other multiplies.
  static constexpr bool kAlternate = kColumns == 128;
  static constexpr int kStages = kAlternate ? 6 : 4;
  static constexpr int kTilesEach = kAlternate ? 2 : 1;
  using Stages = Ring<kTileRows, kColumns, kStages>;
  static constexpr int kPassesAt = Stages::kBytes;
  static constexpr int kBarriersAt = kPassesAt + 2 * kGroupWarps * kPassBytes;
  static constexpr int kSharedBytes =
      kBarriersAt + 2 * kStages * static_cast<int>(sizeof(cuda::Barrier));
};
static_assert(TileShape<128>::kSharedBytes <= 227 * 1024);
static_assert(TileShape<256>::kSharedBytes <= 227 * 1024);

// Eight rows and 128 columns of a warp's sums, into shared memory: the upper or the lower rows.
template <int kLower, int kFrom, int kCount>
__device__ __forceinline__ void pass_sums(int* pass, const int (&sums)[kCount]) {
  const int lane = threadIdx.x % cuda::kWarp;
  int* to = pass + lane / 4 * kPassPitch + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kPassColumns / 8; ++j)
    *reinterpret_cast<int2*>(to + 8 * j) =
        make_int2(sums[kFrom / 2 + 4 * j + 2 * kLower], sums[kFrom / 2 + 4 * j + 2 * kLower + 1]);
}

// The sums of a warp, kTiles times 16 rows 64 apart from `m` on: `part` counts eight rows and 128
// columns at a time, columns slowest. A loop over parts with static indices of the sums.
template <int kTiles, int kCount>
__device__ __forceinline__ void pass_part(int* pass, const int (&sums)[kTiles][kCount], int part) {
  constexpr int kParts = kTiles * kCount / 32;
  static_assert(kParts == 4);
  if constexpr (kTiles == 2) {
    if (part == 0) pass_sums<0, 0>(pass, sums[0]);
    if (part == 1) pass_sums<1, 0>(pass, sums[0]);
    if (part == 2) pass_sums<0, 0>(pass, sums[1]);
    if (part == 3) pass_sums<1, 0>(pass, sums[1]);
  } else {
    if (part == 0) pass_sums<0, 0>(pass, sums[0]);
    if (part == 1) pass_sums<1, 0>(pass, sums[0]);
    if (part == 2) pass_sums<0, 128>(pass, sums[0]);
    if (part == 3) pass_sums<1, 128>(pass, sums[0]);
  }
}

// The row, from the warp's first on, of which lane `lane` has what belongs to it: row lane % 16 of
// tile lane / 16.
__device__ __forceinline__ int own_row(int lane) {
  return lane % kWarpRows + lane / kWarpRows * cuda::kProductRows;
}

// Finishes these sums, from row m and column n of the output on.
template <int kTiles, int kCount, class Out>
__device__ __forceinline__ void finish_sums(const Out& out, int* pass,
                                            const int (&sums)[kTiles][kCount], std::int64_t rows,
                                            std::int64_t m, std::int64_t n) {
  const int lane = threadIdx.x % cuda::kWarp;
  n += 4 * lane;
  const auto own = out.row(m + own_row(lane));
  typename Out::Columns columns;
#pragma unroll 1
  for (int part = 0; part < 4; ++part) {
    const int tile = kTiles == 2 ? part / 2 : 0, lower = part % 2;
    if (kTiles == 1 && part == 2) n += kPassColumns;
    if (part == 0 || (kTiles == 1 && part == 2)) columns = out.columns(n);
    __syncwarp();  // every lane has read the part before
    pass_part(pass, sums, part);
    __syncwarp();
    const std::int64_t top = m + tile * cuda::kProductRows + lower * kPassRows;
    const auto count = static_cast<int>(min(rows - top, std::int64_t{kPassRows}));
    out.finish(
        {pass + 4 * lane, kPassPitch, count, tile * kWarpRows + lower * kPassRows, top, 1, n}, own,
        columns);
  }
}

// The thread that fills the ring. Each block of a cluster copies its own rows of the first factor
// and its share of the second's, the latter into all blocks.
template <int kColumns>
__device__ __forceinline__ void copy_tiles(const TileArgs& args,
                                           const typename TileShape<kColumns>::Stages& ring) {
  const Factors& factors = args.factors;
  const int rank = args.cluster > 1 ? cuda::cluster_rank() : 0;
  const int share = kColumns / args.cluster;
  const unsigned all = (1u << args.cluster) - 1;
  typename TileShape<kColumns>::Stages::Cursor cursor;
#pragma unroll 1
  for (std::uint32_t index = cuda::cluster_index(); index < args.count;
       index += clusters_of(args)) {
    const TilePlace place = tile_place(args, index);
    const int x = (place.down * args.cluster + rank) * kTileRows;
    const int y = place.across * kColumns + rank * share;
    const int x_batch = place.batch * factors.first_step;
    const int y_batch = place.batch * factors.second_step;
#pragma unroll 1
    for (int box = 0; box < factors.k_boxes; ++box) {
      ring.empty[cursor.stage].wait(cursor.parity ^ 1);
      cuda::Barrier& full = ring.full[cursor.stage];
      full.arrive_and_expect(TileShape<kColumns>::Stages::kStageBytes);
      const int k = box * cuda::kBoxBytes;
      cuda::copy_box(ring.first(cursor.stage), factors.first, k, x, x_batch, full);
      std::uint8_t* second = ring.second(cursor.stage) + rank * share * cuda::kBoxBytes;
      if (args.cluster > 1)
        cuda::copy_box_to_blocks(second, factors.second, k, y, y_batch, full, all);
      else
        cuda::copy_box(second, factors.second, k, y, y_batch, full);
      cursor.advance();
    }
  }
}

// Names of barriers: the turn of each of two groups that alternate.
inline constexpr int kTurn = 1;

template <int kColumns>
__device__ __forceinline__ void multiply_group(const TileArgs& args,
                                               const typename TileShape<kColumns>::Stages& ring,
                                               int* passes) {
  using Shape = TileShape<kColumns>;
  const int group = cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads - 1);
  const int warp = threadIdx.x / cuda::kWarp % kGroupWarps;
  const int rank = args.cluster > 1 ? cuda::uniform(cuda::cluster_rank()) : 0;
  const int boxes = args.factors.k_boxes;
  const int group_row = Shape::kAlternate ? 0 : group * cuda::kProductRows;
  int* pass = passes + (group * kGroupWarps + warp) * (kPassBytes / static_cast<int>(sizeof(int)));
  typename Shape::Stages::Cursor cursor;
  int sums[Shape::kTilesEach][kColumns / 2];
  const std::uint32_t step = clusters_of(args);
  std::uint32_t turn = Shape::kAlternate ? group : 0;
#pragma unroll 1
  for (;; turn += Shape::kAlternate ? 2 : 1) {
    const std::uint32_t index = cuda::cluster_index() + turn * step;
    if (index >= args.count) break;
    const TilePlace place = tile_place(args, index);
    const std::int64_t m =
        (std::int64_t{place.down} * args.cluster + rank) * kTileRows + group_row + warp * kWarpRows;
    const std::int64_t n = std::int64_t{place.across} * kColumns;
    const int lane = threadIdx.x % cuda::kWarp;
    for (int column = 4 * lane; column < kColumns; column += kPassColumns)
      touch(args.outputs, place.batch, m + own_row(lane), n + column);
    if constexpr (Shape::kAlternate) {
      cursor = typename Shape::Stages::Cursor(turn * static_cast<std::uint32_t>(boxes));
      if (turn > 0) cuda::named_barrier_wait(kTurn + group, 2 * kGroupThreads);
    }
    const auto issued = [&] {
      if constexpr (Shape::kAlternate)
        if (index + step < args.count)
          cuda::named_barrier_arrive(kTurn + (group ^ 1), 2 * kGroupThreads);
    };
    with_types(args.factors, [&]<bool kFirstUnsigned, bool kSecondUnsigned>() {
      sum_stages<kFirstUnsigned, kSecondUnsigned, Shape::kTilesEach, kColumns>(
          sums, ring, cursor, boxes, group_row, args.cluster, issued);
    });
    with_outputs(args.outputs, place.batch,
                 [&](const auto& out) { finish_sums(out, pass, sums, args.outputs.rows, m, n); });
  }
}

// A grid of whole clusters of any number; cluster i computes tiles i, i + clusters, ...
template <int kColumns>
__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_tiles(const __grid_constant__ TileArgs args) {
  using Shape = TileShape<kColumns>;
  extern __shared__ __align__(1024) std::uint8_t shared[];
  cuda::Barrier* barriers = reinterpret_cast<cuda::Barrier*>(shared + Shape::kBarriersAt);
  const typename Shape::Stages ring{shared, barriers, barriers + Shape::kStages};
  if (threadIdx.x == 0) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    ring.open((Shape::kAlternate ? 1 : 2) * kGroupWarps * args.cluster);
    cuda::prefetch_map(args.factors.first);
    cuda::prefetch_map(args.factors.second);
  }
  if (args.factors.waits) cuda::wait_for_previous();
  // No block may copy to another, or arrive at its barriers, before these are.
  cuda::cluster_barrier_unordered();
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    cuda::lower_registers<40>();
    if (threadIdx.x == 0) copy_tiles<kColumns>(args, ring);
  } else {
    cuda::raise_registers<232>();
    multiply_group<kColumns>(args, ring, reinterpret_cast<int*>(shared + Shape::kPassesAt));
  }
  // No block may end before all have arrived at its barriers.
  if (args.cluster > 1) cuda::cluster_barrier_unordered();
}

// --- Few tokens
// --------------------------------------------------------------------------------------

struct StreamArgs {
  Factors factors;  // weights first
  Outputs outputs;
  int down, across;  // clusters along the rows and columns
};

inline constexpr int kStreamColumns = 128;               // of the output, which are weights' rows
inline constexpr int kStreamPitch = kStreamColumns + 4;  // padded against bank conflicts
inline constexpr int kStreamThreads = kGroupThreads + cuda::kWarp;

// kResident blocks at a time on a multiprocessor.
template <int kTokens, int kResident>
struct StreamShape {
  static constexpr int kStages = (kTokens <= 16   ? 6
                                  : kTokens <= 32 ? 5
                                  : kTokens <= 64 ? 4
                                                  : 3) *
                                 (2 / kResident);
  using Stages = Ring<kStreamColumns, kTokens, kStages>;
  // The sums of a block, token by token, lie where the stages were.
  static constexpr int kSumBytes = kTokens * kStreamPitch * static_cast<int>(sizeof(int));
  static constexpr int kBarriersAt = Stages::kBytes;
  static constexpr int kSharedBytes =
      kBarriersAt + 2 * kStages * static_cast<int>(sizeof(cuda::Barrier));
  static_assert(kSumBytes <= Stages::kBytes);
  static_assert(kResident * (kSharedBytes + 1024) <= 228 * 1024);
};

template <int kTokens>
__device__ __forceinline__ void keep_sums(int* to, const int (&sums)[2][kTokens / 2]) {
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  to += warp * kWarpRows + lane / 4 + lane % 4 * 2 * kStreamPitch;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile)
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i)
      to[(i / 4 * 8 + i % 2) * kStreamPitch + tile * cuda::kProductRows + i % 4 / 2 * 8] =
          sums[tile][i];
}

// Adds up what the blocks of the cluster have of this block's share of the tokens, one token a warp
// at a time: tokens first, first + step, ... of `sums`, of which only this block reads its own.
__device__ __forceinline__ void add_shares(int* sums, int blocks, int first, int step, int tokens) {
  constexpr int kAtOnce = 4;
  const int lane = threadIdx.x % cuda::kWarp;
  sums += 4 * lane;
#pragma unroll 1
  for (int token = first; token < tokens; token += kAtOnce * step) {
    // Unsigned, since sums may wrap.
    uint4 totals[kAtOnce] = {};
#pragma unroll 2
    for (int block = 0; block < blocks; ++block) {
      uint4 parts[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        parts[j] = cuda::load_from_block(
            cuda::shared_address(sums + min(token + j * step, tokens - 1) * kStreamPitch), block);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        totals[j] = make_uint4(totals[j].x + parts[j].x, totals[j].y + parts[j].y,
                               totals[j].z + parts[j].z, totals[j].w + parts[j].w);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (token + j * step < tokens)
        *reinterpret_cast<uint4*>(sums + (token + j * step) * kStreamPitch) = totals[j];
  }
}

// What a block of a cluster has of a tile: part `part` of k, and in the end some of the tokens.
struct Share {
  int part, parts;

  // The first box of a part.
  __device__ __forceinline__ int box(int boxes, int number) const {
    return static_cast<int>(std::int64_t{boxes} * number / parts);
  }
  // A warp's tokens are first(warp), first(warp) + step(), ...
  __device__ __forceinline__ int first(int warp) const { return part * kGroupWarps + warp; }
  __device__ __forceinline__ int step() const { return parts * kGroupWarps; }
};

// Finishes this block's share of the tokens, from row m and column n of the output on.
template <class Out>
__device__ __forceinline__ void finish_share(const Out& out, int* sums, const Share& share,
                                             int tokens, std::int64_t m, std::int64_t n) {
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const int first = share.first(warp), step = share.step();
  n += 4 * lane;
  const auto columns = out.columns(n);
  const auto rows = out.row(m + first + lane * step);  // lane i has the warp's row number i
  cuda::cluster_barrier();
  if (share.parts > 1) add_shares(sums, share.parts, first, step, tokens);
  const int count = max(tokens - first + step - 1, 0) / step;
  out.finish(
      {sums + first * kStreamPitch + 4 * lane, step * kStreamPitch, count, 0, m + first, step, n},
      rows, columns);
}

// The thread that fills the ring with boxes [first, last) along k: weights from row n, tokens from
// row m on.
template <class Ring>
__device__ __forceinline__ void copy_streamed(const Factors& factors, const Ring& ring, int batch,
                                              int first, int last, int n, int m) {
  typename Ring::Cursor cursor;
#pragma unroll 1
  for (int box = first; box < last; ++box) {
    ring.empty[cursor.stage].wait(cursor.parity ^ 1);
    cuda::Barrier& full = ring.full[cursor.stage];
    full.arrive_and_expect(Ring::kStageBytes);
    const int k = box * cuda::kBoxBytes;
    cuda::copy_box(ring.first(cursor.stage), factors.first, k, n, batch * factors.first_step, full);
    cuda::copy_box(ring.second(cursor.stage), factors.second, k, m, batch * factors.second_step,
                   full);
    cursor.advance();
  }
}

// A cluster computes one tile; its blocks split k.
template <int kTokens, int kResident>
__global__ void __launch_bounds__(kStreamThreads, kResident)
    multiply_streamed(const __grid_constant__ StreamArgs args) {
  using Shape = StreamShape<kTokens, kResident>;
  extern __shared__ __align__(1024) std::uint8_t shared[];
  cuda::Barrier* barriers = reinterpret_cast<cuda::Barrier*>(shared + Shape::kBarriersAt);
  const typename Shape::Stages ring{shared, barriers, barriers + Shape::kStages};
  const Factors& factors = args.factors;
  const Share share{cuda::cluster_rank(), cuda::cluster_size()};
  // Tiles of the same weights one after another, so that these come from memory once.
  const std::uint32_t tile = cuda::cluster_index();
  const int down = static_cast<int>(tile % args.down);
  const int across = static_cast<int>(tile / args.down % args.across);
  const int batch = static_cast<int>(tile / args.down / args.across);
  const int first = share.box(factors.k_boxes, share.part);
  const int last = share.box(factors.k_boxes, share.part + 1);
  const std::int64_t m = std::int64_t{down} * kTokens;
  const std::int64_t n = std::int64_t{across} * kStreamColumns;
  if (threadIdx.x == 0) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    ring.open(kGroupWarps);
    cuda::prefetch_map(factors.first);
    cuda::prefetch_map(factors.second);
  }
  if (factors.waits) cuda::wait_for_previous();
  __syncthreads();
  if (threadIdx.x >= kGroupThreads) {
    if (threadIdx.x == kGroupThreads)
      copy_streamed(factors, ring, batch, first, last, static_cast<int>(n), static_cast<int>(m));
    cuda::cluster_barrier();
  } else {
    const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
    touch(args.outputs, batch, m + share.first(warp) + lane * share.step(), n + 4 * lane);
    int sums[2][kTokens / 2];
    // A block without a part of k adds zeros.
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) sums[0][i] = sums[1][i] = 0;
    const int boxes = cuda::uniform(last - first);
    with_types(factors, [&]<bool kFirstUnsigned, bool kSecondUnsigned>() {
      typename Shape::Stages::Cursor cursor;
      sum_stages<kFirstUnsigned, kSecondUnsigned, 2, kTokens>(sums, ring, cursor, boxes, 0, 1,
                                                              [] {});
    });
    // The stages are written over once every warp's products are done with them.
    cuda::named_barrier_wait(1, kGroupThreads);
    keep_sums<kTokens>(reinterpret_cast<int*>(shared), sums);
    with_outputs(args.outputs, batch, [&](const auto& out) {
      const auto tokens = static_cast<int>(min(std::int64_t{kTokens}, args.outputs.rows - m));
      finish_share(out, reinterpret_cast<int*>(shared), share, tokens, m, n);
    });
  }
  // No block may end before all have read its sums.
  cuda::cluster_barrier_unordered();
}

}  // namespace planq::linear::wgmma
