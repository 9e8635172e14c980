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
#include "ops/linear/wgmma_chain.cuh"

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

// --- The ring of stages -------------------------------------------------------------------------

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
  __device__ __forceinline__ Cursor cursor() const { return {}; }
  // By every warp that reads a stage.
  __device__ __forceinline__ void release(int stage) const {
    if (threadIdx.x % cuda::kWarp == 0) empty[stage].arrive();
  }
};

// kTiles x 64 rows of the first factor with all of the second, over `boxes` stages from the cursor
// on. The sums begin at 0. Every warp gives a stage back. `visit(box, stage)` is called while a box
// is multiplied, `issued()` once the last product is under way.
template <bool kFirstUnsigned, bool kSecondUnsigned, int kTiles, int kSecond, class Ring,
          class Visit, class Issued>
__device__ __forceinline__ void sum_stages(int (&sums)[kTiles][kSecond / 2], const Ring& ring,
                                           typename Ring::Cursor cursor, int boxes,
                                           const Visit& visit, const Issued& issued) {
  const std::uint64_t first_factor = cuda::factor_of(cuda::shared_address(ring.first(0)));
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
    visit(box, cursor.stage);
    add = 1;
    // The products of the stage before are done, those of this one go on.
    cuda::wait_for_products<1>();
    if (previous >= 0) ring.release(previous);
    previous = cursor.stage;
    cursor.advance();
  }
  issued();
  cuda::wait_for_products<0>();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
  if (previous >= 0) ring.release(previous);
}

// --- Many rows on both sides --------------------------------------------------------------------

struct TileArgs {
  Factors factors;
  Outputs outputs;
  // Tiles: `across` of them along the columns, `down` along the rows, in bands of `band` along the
  // rows, so that what runs at a time shares rows and columns in the L2 cache.
  int down, across, band;
  std::uint32_t count;  // of all batches, below 2^31
};
struct ListedTileArgs : TileArgs {
  Listed listed;
};

template <Lists kLists>
using TileArgsOf = std::conditional_t<kLists == Lists::None, TileArgs, ListedTileArgs>;

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

inline constexpr int kTileRows = 128, kTileColumns = 128;
inline constexpr int kTilesEach = kTileRows / cuda::kProductRows;  // of a group's instructions
inline constexpr int kTileThreads = 3 * kGroupThreads;
// What a warp puts its sums through, so that its lanes have four neighbouring columns: eight rows,
// padded so that neither side meets a bank twice.
inline constexpr int kPassRows = 8, kPassPitch = kTileColumns + 8;
inline constexpr int kPassSums = kPassRows * kPassPitch;

// Shared memory of two groups: a ring of stages for tiles of kRows x kTileColumns, and what each
// group passes its sums through.
template <int kRows_, int kStages_>
struct TileShapeOf {
  static constexpr int kRows = kRows_, kStages = kStages_;
  using Stages = Ring<kRows, kTileColumns, kStages>;
  static constexpr int kPassesAt = Stages::kBytes;
  static constexpr int kPassBytes = kGroupWarps * kPassSums * static_cast<int>(sizeof(int));
  static constexpr int kBarriersAt = kPassesAt + 2 * kPassBytes;
  static constexpr int kSharedBytes =
      kBarriersAt + 2 * kStages * static_cast<int>(sizeof(cuda::Barrier));
  static_assert(kSharedBytes <= 227 * 1024);
  static_assert(kCodeBytes <= kPassBytes);
  static_assert(kPassesAt % 1024 == 0 && kPassBytes % 1024 == 0);
};
// Each of two groups has tiles of its own: one's epilogue runs while the other multiplies. Tiles
// that both share were slower at every size, whether 128 x 256 or with clusters of two.
using TileShape = TileShapeOf<kTileRows, 6>;

// Eight rows of a warp's sums, into shared memory: the upper or the lower ones of a tile of the
// tensor cores.
template <int kLower>
__device__ __forceinline__ void pass_sums(int* pass, const int (&sums)[kTileColumns / 2]) {
  const int lane = threadIdx.x % cuda::kWarp;
  int* to = pass + lane / 4 * kPassPitch + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kTileColumns / 8; ++j)
    *reinterpret_cast<int2*>(to + 8 * j) =
        make_int2(sums[4 * j + 2 * kLower], sums[4 * j + 2 * kLower + 1]);
}
using TileSums = int[kTilesEach][kTileColumns / 2];

// Part `part` of a warp's sums, with static indices of these in a loop over parts.
template <int kTiles>
__device__ __forceinline__ void pass_part(int* pass, const int (&sums)[kTiles][kTileColumns / 2],
                                          int part) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (part == 2 * tile) pass_sums<0>(pass, sums[tile]);
    if (part == 2 * tile + 1) pass_sums<1>(pass, sums[tile]);
  }
}

// The row, from the warp's first on, of which lane `lane` has what belongs to it: row lane % 16 of
// tile lane / 16.
__device__ __forceinline__ int own_row(int lane) {
  return lane % kWarpRows + lane / kWarpRows * cuda::kProductRows;
}

// Finishes these sums, from row m and column n of the output on.
template <int kTiles, class Out>
__device__ __forceinline__ void finish_sums(const Out& out, int* pass,
                                            const int (&sums)[kTiles][kTileColumns / 2],
                                            std::int64_t rows, std::int64_t m, std::int64_t n) {
  const int lane = threadIdx.x % cuda::kWarp;
  n += 4 * lane;
  const auto own = out.row(m + own_row(lane));
  const auto columns = out.columns(n);
#pragma unroll 1
  for (int part = 0; part < 2 * kTiles; ++part) {
    const int tile = part / 2, lower = part % 2;
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

// The tiles of a block, one after another.
class TileTurns {
 public:
  __device__ __forceinline__ TileTurns(const TileArgs& args, std::uint32_t first,
                                       std::uint32_t step)
      : args_(args), index_(blockIdx.x + first * gridDim.x), step_(step * gridDim.x) {}

  __device__ __forceinline__ bool has_tile() const { return index_ < args_.count; }
  // Whether there is a tile behind this one, for whichever group.
  __device__ __forceinline__ bool has_next() const { return index_ + gridDim.x < args_.count; }
  __device__ __forceinline__ TilePlace place() const { return tile_place(args_, index_); }
  __device__ __forceinline__ void advance() { index_ += step_; }

 private:
  const TileArgs& args_;
  std::uint32_t index_, step_;
};

// Copies a box of 128 bytes along k of kRows rows of a factor, from row `row` on. Of one that lies
// transposed these are the boxes that cuda::transposed_factor_of() tells of.
template <int kRows, class T>
__device__ __forceinline__ void copy_rows(std::uint8_t* to, const cuda::TensorMap& map, int box,
                                          int row, int batch, const cuda::Barrier& full) {
  if constexpr (cuda::kTransposed<T>) {
    constexpr int kBoxRows = cuda::kBoxBytes / static_cast<int>(sizeof(T));
#pragma unroll
    for (int more = 0; more < kRows; more += kBoxRows)
      cuda::copy_box(to + more * cuda::kBoxBytes, map, (row + more) * static_cast<int>(sizeof(T)),
                     box * cuda::kTransposedTerms, batch, full);
  } else {
    cuda::copy_box(to, map, box * cuda::kBoxBytes, row, batch, full);
  }
}

// The thread that fills the ring, with numbers of A and B.
template <class Shape, class A = std::int8_t, class B = A>
__device__ __forceinline__ void copy_tiles(const TileArgs& args,
                                           const typename Shape::Stages& ring) {
  const Factors& factors = args.factors;
  typename Shape::Stages::Cursor cursor;
#pragma unroll 1
  for (TileTurns turns(args, 0, 1); turns.has_tile(); turns.advance()) {
    const TilePlace place = turns.place();
    const int x = place.down * Shape::kRows, y = place.across * kTileColumns;
    const int x_batch = place.batch * factors.first_step;
    const int y_batch = place.batch * factors.second_step;
#pragma unroll 1
    for (int box = 0; box < factors.k_boxes; ++box) {
      ring.empty[cursor.stage].wait(cursor.parity ^ 1);
      cuda::Barrier& full = ring.full[cursor.stage];
      full.arrive_and_expect(Shape::Stages::kStageBytes);
      copy_rows<Shape::kRows, A>(ring.first(cursor.stage), factors.first, box, x, x_batch, full);
      copy_rows<kTileColumns, B>(ring.second(cursor.stage), factors.second, box, y, y_batch, full);
      cursor.advance();
    }
  }
}

// Names of barriers: the turn of each group, and what it has with those who pick for it.
inline constexpr int kTurn = 1;
__device__ __forceinline__ TileBarriers barriers_of(int group) {
  return {3 + group, 5 + group, 7 + group};
}

// What a group does about outliers. Codes lie in its passes, which are free while it multiplies.
template <Lists kLists>
__device__ __forceinline__ auto outliers_of(const TileArgsOf<kLists>& args, int* passes,
                                            int group) {
  if constexpr (kLists == Lists::Sequential)
    return TileOutliers(args.listed, reinterpret_cast<std::uint16_t*>(passes),
                        barriers_of(group).own);
  else if constexpr (kLists == Lists::Tensor)
    return TileSteps(args.listed, reinterpret_cast<std::uint16_t*>(passes), barriers_of(group));
  else
    return NoOutliers{};
}

// The warps that pick codes for both groups: number `warp` of them.
__device__ __forceinline__ void pick_tiles(const ListedTileArgs& args,
                                           const TileShape::Stages& ring, std::uint8_t* passes,
                                           int warp) {
  const ListedColumns columns(args.listed);
  const PlacePicker<FactorOrder, kPickWarps> picker(args.listed, columns, warp);
  TileShape::Stages::Cursor cursor;
  int group = 0;
#pragma unroll 1
  for (TileTurns turns(args, 0, 1); turns.has_tile(); turns.advance(), group ^= 1) {
    const TileBarriers barriers = barriers_of(group);
    auto* codes = reinterpret_cast<std::uint16_t*>(passes + group * TileShape::kPassBytes);
    cuda::named_barrier_wait(barriers.free, kPickThreads);
    picker.clear(codes);
#pragma unroll 1
    for (int box = 0; box < args.factors.k_boxes; ++box) {
      ring.full[cursor.stage].wait(cursor.parity);
      picker.pick(box, ring.second(cursor.stage), codes);
      ring.release(cursor.stage);
      cursor.advance();
    }
    cuda::show_to_products();
    cuda::named_barrier_arrive(barriers.full, kPickThreads);
  }
}

template <Lists kLists>
__device__ __forceinline__ void multiply_group(const TileArgsOf<kLists>& args,
                                               const TileShape::Stages& ring,
                                               std::uint8_t* passes) {
  const int group = cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads - 1);
  const int warp = threadIdx.x / cuda::kWarp % kGroupWarps, lane = threadIdx.x % cuda::kWarp;
  const int boxes = args.factors.k_boxes;
  int* own = reinterpret_cast<int*>(passes + group * TileShape::kPassBytes);
  int* pass = own + warp * kPassSums;
  const auto outliers = outliers_of<kLists>(args, own, group);
  TileSums sums;
  std::uint32_t turn = group;
#pragma unroll 1
  for (TileTurns turns(args, group, 2); turns.has_tile(); turns.advance(), turn += 2) {
    const TilePlace place = turns.place();
    const std::int64_t m = std::int64_t{place.down} * kTileRows + warp * kWarpRows;
    const std::int64_t n = std::int64_t{place.across} * kTileColumns;
    touch(args.outputs, place.batch, m + own_row(lane), n + 4 * lane);
    outliers.begin(args.outputs, place.batch, m + own_row(lane));
    TileShape::Stages::Cursor cursor(turn * static_cast<std::uint32_t>(boxes));
    if (turn > 0) cuda::named_barrier_wait(kTurn + group, 2 * kGroupThreads);
    const auto issued = [&] {
      if (turns.has_next()) cuda::named_barrier_arrive(kTurn + (group ^ 1), 2 * kGroupThreads);
    };
    const auto visit = [&](int box, int stage) { outliers.pick(box, ring.second(stage)); };
    const auto multiply = [&]<bool kFirstUnsigned, bool kSecondUnsigned>() {
      sum_stages<kFirstUnsigned, kSecondUnsigned, kTilesEach, kTileColumns>(sums, ring, cursor,
                                                                            boxes, visit, issued);
    };
    const auto finish = [&](const auto& out) {
      finish_sums(out, pass, sums, args.outputs.rows, m, n);
    };
    if constexpr (kLists != Lists::None) {
      multiply.template operator()<false, false>();
      scale_rows(sums, args.outputs, place.batch, m);
      outliers.add(sums, args.outputs, place.batch, m, n);
      finish(ScaledOutputs<float, SumsAre::Scaled>(args.outputs, place.batch));
    } else {
      with_types(args.factors, multiply);
      with_outputs(args.outputs, place.batch, finish);
    }
  }
}

// A grid of any number of blocks; block i computes tiles i, i + blocks, ...
template <Lists kLists>
__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_tiles(const __grid_constant__ TileArgsOf<kLists> args) {
  constexpr bool kPicks = kLists == Lists::Tensor;
  extern __shared__ __align__(1024) std::uint8_t shared[];
  cuda::Barrier* barriers = reinterpret_cast<cuda::Barrier*>(shared + TileShape::kBarriersAt);
  const TileShape::Stages ring{shared, barriers, barriers + TileShape::kStages};
  std::uint8_t* passes = shared + TileShape::kPassesAt;
  if (threadIdx.x == 0) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    ring.open(kPicks ? kGroupWarps + kPickWarps : kGroupWarps);
    cuda::prefetch_map(args.factors.first);
    cuda::prefetch_map(args.factors.second);
  }
  if (args.factors.waits) cuda::wait_for_previous();
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    // What these give up is what the others get.
    cuda::lower_registers<kPicks ? 56 : 40>();
    const int warp = cuda::uniform(static_cast<int>(threadIdx.x) / cuda::kWarp);
    if (threadIdx.x == 0) copy_tiles<TileShape>(args, ring);
    if constexpr (kPicks)
      if (warp > 0) pick_tiles(args, ring, passes, warp - 1);
  } else {
    cuda::raise_registers<kPicks ? 224 : 232>();
    multiply_group<kLists>(args, ring, passes);
  }
}

// --- Few tokens ---------------------------------------------------------------------------------

struct StreamArgs {
  Factors factors;  // weights first
  Outputs outputs;
  int down, across;  // clusters along the rows and columns
};
struct ListedStreamArgs : StreamArgs {
  Listed listed;
};

inline constexpr int kStreamColumns = 128;               // of the output, which are weights' rows
inline constexpr int kStreamPitch = kStreamColumns + 4;  // padded against bank conflicts
inline constexpr int kStreamThreads = kGroupThreads + cuda::kWarp;

// kResident blocks at a time on a multiprocessor. With outliers there is room for their codes.
template <int kTokens, int kResident, bool kListed = false>
struct StreamShape {
  static constexpr int kMostStages = kTokens <= 16 ? 6 : kTokens <= 32 ? 5 : kTokens <= 64 ? 4 : 3;
  static constexpr int kStages =
      (kListed && kTokens <= 32 ? kMostStages - 1 : kMostStages) * (2 / kResident);
  using Stages = Ring<kStreamColumns, kTokens, kStages>;
  // The sums of a block, token by token, lie where the stages were.
  static constexpr int kSumBytes = kTokens * kStreamPitch * static_cast<int>(sizeof(int));
  static constexpr int kCodesAt = Stages::kBytes;
  static constexpr int kBarriersAt = kCodesAt + (kListed ? kCodeBytes : 0);
  static constexpr int kSharedBytes =
      kBarriersAt + 2 * kStages * static_cast<int>(sizeof(cuda::Barrier));
  static_assert(kSumBytes + (kListed ? kGroupWarps * kStagedBytes : 0) <= Stages::kBytes);
  static_assert(kResident * (kSharedBytes + 1024) <= 228 * 1024);
};

template <Lists kLists>
using StreamArgsOf = std::conditional_t<kLists == Lists::None, StreamArgs, ListedStreamArgs>;

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

// Finishes this block's share of the tokens, from row m and column n of the output on. `add(rows,
// scales)` may add to the warp's sums once they are complete.
template <class Out, class Add>
__device__ __forceinline__ void finish_share(const Out& out, int* sums, const Share& share,
                                             int tokens, std::int64_t m, std::int64_t n,
                                             const Add& add) {
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const int first = share.first(warp), step = share.step();
  n += 4 * lane;
  const auto columns = out.columns(n);
  const auto rows = out.row(m + first + lane * step);  // lane i has the warp's row number i
  cuda::cluster_barrier();
  if (share.parts > 1) add_shares(sums, share.parts, first, step, tokens);
  const int count = max(tokens - first + step - 1, 0) / step;
  int* own = sums + first * kStreamPitch + 4 * lane;
  add(ListedRows{own, step * kStreamPitch, count, m + first, step}, rows);
  out.finish({own, step * kStreamPitch, count, 0, m + first, step, n}, rows, columns);
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
// What the four warps that multiply do: over `boxes` stages, for the output from row m and column n
// on.
template <int kTokens, class Ring, class Outliers>
__device__ __forceinline__ void multiply_share(const StreamArgs& args, const Ring& ring,
                                               const Share& share, int batch, int boxes,
                                               std::int64_t m, std::int64_t n,
                                               const Outliers& outliers) {
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const std::int64_t own_row = m + share.first(warp) + lane * share.step();
  touch(args.outputs, batch, own_row, n + 4 * lane);
  outliers.touch_row(args.outputs, batch, own_row);
  int sums[2][kTokens / 2];
  // A block without a part of k adds zeros.
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) sums[0][i] = sums[1][i] = 0;
  const auto visit = [&](int box, int stage) { outliers.pick(box, ring.first(stage)); };
  const auto multiply = [&]<bool kFirstUnsigned, bool kSecondUnsigned>() {
    sum_stages<kFirstUnsigned, kSecondUnsigned, 2, kTokens>(sums, ring, typename Ring::Cursor(),
                                                            cuda::uniform(boxes), visit, [] {});
  };
  if constexpr (Outliers::kListed)
    multiply.template operator()<false, false>();
  else
    with_types(args.factors, multiply);
  // The stages are written over once every warp's products are done with them.
  cuda::named_barrier_wait(1, kGroupThreads);
  int* held = reinterpret_cast<int*>(ring.stages);
  keep_sums<kTokens>(held, sums);
  const auto tokens = static_cast<int>(min(std::int64_t{kTokens}, args.outputs.rows - m));
  if constexpr (Outliers::kListed) {
    float* staged = reinterpret_cast<float*>(held + kTokens * kStreamPitch) +
                    warp * (kStagedBytes / static_cast<int>(sizeof(float)));
    finish_share(ScaledOutputs<float, SumsAre::Scaled>(args.outputs, batch), held, share, tokens, m,
                 n, [&](const ListedRows& rows, const RowTerm<float>& own) {
                   if (share.first(0) < tokens)  // of any warp
                     outliers.add(rows, own.scale, args.outputs.columns, batch, n, staged);
                 });
  } else {
    with_outputs(args.outputs, batch, [&](const auto& out) {
      finish_share(out, held, share, tokens, m, n, [](const ListedRows&, const auto&) {});
    });
  }
}

template <Lists kLists>
using SharesOf =
    std::conditional_t<kLists == Lists::Tensor, ShareSteps<Share>, ShareOutliers<Share>>;

template <int kTokens, int kResident, Lists kLists>
__global__ void __launch_bounds__(kStreamThreads, kResident)
    multiply_streamed(const __grid_constant__ StreamArgsOf<kLists> args) {
  constexpr bool kListed = kLists != Lists::None;
  using Shape = StreamShape<kTokens, kResident, kListed>;
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
    const auto multiply = [&](const auto& outliers) {
      multiply_share<kTokens>(args, ring, share, batch, last - first, m, n, outliers);
    };
    if constexpr (kListed)
      multiply(SharesOf<kLists>(args.listed, share, factors.k_boxes,
                                reinterpret_cast<std::uint16_t*>(shared + Shape::kCodesAt)));
    else
      multiply(NoOutliers{});
  }
  // No block may end before all have read its sums.
  cuda::cluster_barrier_unordered();
}

}  // namespace planq::linear::wgmma
