// Products of 8-bit matrices on the tensor cores of sm_90a: d[x, y] = sum over k of first[x, k] *
// second[y, k], in int32, then an epilogue. Integer sums modulo 2^32 are the same in any order, so
// every kernel here gives the same bits, whatever its tiles and however it splits k.
//
// Two kernels. `multiply_tiles` is for many rows on both sides: a block computes tile after tile;
// four of its warps copy boxes of both factors into a ring of stages, eight multiply.
// `multiply_few_rows` is for few rows of tokens, where the weights' bytes are the time: weights are
// the first factor, and the blocks of a cluster split k.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/mbarrier.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/tensor_map.cuh"
#include "cuda/wgmma.cuh"
#include "ops/linear/linear_llm_int8/sm90_steps.cuh"

namespace planq::linear::sm90 {

// For the kernel before, which may still be writing what is read here.
enum class Waits {
  Never,
  ForInput,  // which is all that it writes: the weight's first boxes are on their way meanwhile
  ForBoth,
};

struct OperandMaps {
  cuda::TensorMap first, second;
  // What a batch adds to the third coordinate: 0 where all batches share a factor.
  int first_step, second_step;
  int k_blocks;  // at least 1
  int first_unsigned, second_unsigned;
  Waits waits;
};

// By threads that read what it may be writing.
__device__ __forceinline__ void wait_for_input(const OperandMaps& operands) {
  if (operands.waits != Waits::Never) cuda::wait_for_previous();
}

inline constexpr int kGroupThreads = 128;  // that multiply together
inline constexpr int kGroupWarps = kGroupThreads / cuda::kWarp;
inline constexpr int kWarpRows = 16;  // of a group's 64

// Calls body<first unsigned, second unsigned>().
template <class Body>
__device__ __forceinline__ void with_types(const OperandMaps& operands, const Body& body) {
  if (!operands.first_unsigned)
    operands.second_unsigned ? body.template operator()<false, true>()
                             : body.template operator()<false, false>();
  else
    operands.second_unsigned ? body.template operator()<true, true>()
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
  // Warps that give a stage back: those that multiply and, with a list, the one that picks from it.
  static constexpr int releases(bool listed) { return kGroupWarps + (listed ? 1 : 0); }

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
// on. The sums begin at 0. Every warp gives a stage back. `before(box)` is called before the
// products of a box, `issued()` once the last ones are under way.
template <bool kFirstUnsigned, bool kSecondUnsigned, int kTiles, int kSecond, class Ring,
          class Before, class Issued>
__device__ __forceinline__ void sum_stages(int (&sums)[kTiles][kSecond / 2], const Ring& ring,
                                           typename Ring::Cursor cursor, int boxes,
                                           const Before& before, const Issued& issued) {
  const std::uint64_t first_factor = cuda::factor_of(cuda::shared_address(ring.first(0)));
  const std::uint64_t second_factor = cuda::factor_of(cuda::shared_address(ring.second(0)));
  int add = 0, previous = -1;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
#pragma unroll 1
  for (int box = 0; box < boxes; ++box) {
    before(box);
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
  OperandMaps operands;
  Outputs outputs;
  // Tiles: `across` of them along the columns, `down` along the rows, in bands of `band` along the
  // rows, so that what runs at a time shares rows and columns in the L2 cache.
  int down, across, band;
  std::uint32_t count;  // of all batches, below 2^31
};
struct OutlierTileArgs : TileArgs {
  OutlierList listed;
};

template <OutlierSums kLists>
using TileArgsOf = std::conditional_t<kLists == OutlierSums::None, TileArgs, OutlierTileArgs>;

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
inline constexpr int kStagingRows = 8, kStagingPitch = kTileColumns + 8;
inline constexpr int kStagingSums = kStagingRows * kStagingPitch;

// Shared memory of two groups: a ring of stages for tiles of kRows x kTileColumns, and what each
// group passes its sums through.
template <int kRows_, int kStages_>
struct TileShapeOf {
  static constexpr int kRows = kRows_, kStages = kStages_;
  using Stages = Ring<kRows, kTileColumns, kStages>;
  static constexpr int kStagingAt = Stages::kBytes;
  static constexpr int kPassBytes = kGroupWarps * kStagingSums * static_cast<int>(sizeof(int));
  static constexpr int kBarriersAt = kStagingAt + 2 * kPassBytes;
  static constexpr int kSharedBytes =
      kBarriersAt + 2 * kStages * static_cast<int>(sizeof(cuda::Barrier));
  static_assert(kSharedBytes <= 227 * 1024);
  static_assert(kCodeBytes <= kPassBytes);
  static_assert(kStagingAt % 1024 == 0 && kPassBytes % 1024 == 0);
};
// Each of two groups has tiles of its own: one's epilogue runs while the other multiplies. Tiles
// that both share were slower at every size, whether 128 x 256 or with clusters of two.
using TileShape = TileShapeOf<kTileRows, 6>;

// Eight rows of a warp's sums, into shared memory: the upper or the lower ones of a tile of the
// tensor cores.
template <int kLower>
__device__ __forceinline__ void stage_sums(int* staging, const int (&sums)[kTileColumns / 2]) {
  const int lane = threadIdx.x % cuda::kWarp;
  int* to = staging + lane / 4 * kStagingPitch + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kTileColumns / 8; ++j)
    *reinterpret_cast<int2*>(to + 8 * j) =
        make_int2(sums[4 * j + 2 * kLower], sums[4 * j + 2 * kLower + 1]);
}
using TileSums = int[kTilesEach][kTileColumns / 2];

// Part `part` of a warp's sums, with static indices of these in a loop over parts.
template <int kTiles>
__device__ __forceinline__ void stage_part(int* staging,
                                           const int (&sums)[kTiles][kTileColumns / 2], int part) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (part == 2 * tile) stage_sums<0>(staging, sums[tile]);
    if (part == 2 * tile + 1) stage_sums<1>(staging, sums[tile]);
  }
}

// The row, from the warp's first on, of which lane `lane` has what belongs to it: row lane % 16 of
// tile lane / 16.
__device__ __forceinline__ int own_row(int lane) {
  return lane % kWarpRows + lane / kWarpRows * cuda::kProductRows;
}

// Finishes these sums, from row m and column n of the output on.
template <int kTiles, class Out>
__device__ __forceinline__ void finish_sums(const Out& out, int* staging,
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
    stage_part(staging, sums, part);
    __syncwarp();
    const std::int64_t top = m + tile * cuda::kProductRows + lower * kStagingRows;
    const auto count = static_cast<int>(min(rows - top, std::int64_t{kStagingRows}));
    out.finish({staging + 4 * lane, kStagingPitch, count, tile * kWarpRows + lower * kStagingRows,
                top, 1, n},
               own, columns);
  }
}

// The tiles of a block, one after another.
class TileSchedule {
 public:
  __device__ __forceinline__ TileSchedule(const TileArgs& args, std::uint32_t first,
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
  const OperandMaps& operands = args.operands;
  typename Shape::Stages::Cursor cursor;
#pragma unroll 1
  for (TileSchedule schedule(args, 0, 1); schedule.has_tile(); schedule.advance()) {
    const TilePlace place = schedule.place();
    const int x = place.down * Shape::kRows, y = place.across * kTileColumns;
    const int x_batch = place.batch * operands.first_step;
    const int y_batch = place.batch * operands.second_step;
#pragma unroll 1
    for (int box = 0; box < operands.k_blocks; ++box) {
      ring.empty[cursor.stage].wait(cursor.parity ^ 1);
      cuda::Barrier& full = ring.full[cursor.stage];
      full.arrive_and_expect(Shape::Stages::kStageBytes);
      copy_rows<Shape::kRows, A>(ring.first(cursor.stage), operands.first, box, x, x_batch, full);
      copy_rows<kTileColumns, B>(ring.second(cursor.stage), operands.second, box, y, y_batch, full);
      cursor.advance();
    }
  }
}

__device__ __forceinline__ bool picks_from_boxes(const TileArgs&) { return false; }
__device__ __forceinline__ bool picks_from_boxes(const OutlierTileArgs& args) {
  return !args.listed.codes;
}

// Names of barriers: the turn of each group, and what it has with those who pick for it.
inline constexpr int kTurn = 1;
// The steps of a group for its list find the tensor cores free: the other one's products run up to
// this box, and wait there. They would keep the steps waiting for all of their time.
inline constexpr int kStepsDone = 9, kStepsBox = 3;
__device__ __forceinline__ TileBarriers barriers_of(int group) {
  return {3 + group, 5 + group, 7 + group};
}

// Warp number `warp` of those that pick takes the boxes of every kPickWarps-th stage, out of
// `boxes` from number `first` on, whose stages follow `before` others. A stage has one warp, which
// has seen each of its phases end. rows_of(stage): the weight's rows in a stage.
template <class Picks, class Ring, class RowsOf>
__device__ __forceinline__ void pick_boxes(const Picks& picker, const Ring& ring,
                                           std::uint32_t before, int first, int boxes, int warp,
                                           const RowsOf& rows_of, std::uint16_t* codes) {
  typename Ring::Cursor cursor(before);
#pragma unroll 1
  for (int box = 0; box < boxes; ++box, cursor.advance()) {
    if (cursor.stage % kPickWarps != warp) continue;
    ring.full[cursor.stage].wait(cursor.parity);
    picker.pick(first + box, rows_of(cursor.stage), codes);
    ring.release(cursor.stage);
  }
}

// What a group does about outliers. Codes lie in its passes, which are free while it multiplies.
template <OutlierSums kLists>
using TilesOf = std::conditional_t<kLists == OutlierSums::Tensor, TileSteps<kTilesEach>,
                                   TileOutliers<kTilesEach>>;
template <OutlierSums kLists>
__device__ __forceinline__ auto outliers_of(const TileArgsOf<kLists>& args, int* staging,
                                            int group) {
  if constexpr (kLists == OutlierSums::None)
    return NoOutliers{};
  else
    return TilesOf<kLists>(args.listed, reinterpret_cast<std::uint16_t*>(staging),
                           barriers_of(group));
}

// Number `warp` of the warps that bring codes for both groups: listed ones, or they pick them.
template <class Order>
__device__ __forceinline__ void bring_tiles(const OutlierTileArgs& args,
                                            const TileShape::Stages& ring, std::uint8_t* staging,
                                            int warp) {
  const OutlierList& listed = args.listed;
  const OutlierColumns columns(listed);
  const Picker<Order> picker(listed, columns);
  const int boxes = args.operands.k_blocks;
  std::uint32_t turn = 0;
#pragma unroll 1
  for (TileSchedule schedule(args, 0, 1); schedule.has_tile(); schedule.advance(), ++turn) {
    const TileBarriers barriers = barriers_of(static_cast<int>(turn % 2));
    auto* codes = reinterpret_cast<std::uint16_t*>(staging + turn % 2 * TileShape::kPassBytes);
    cuda::named_barrier_wait(barriers.free, kPickThreads);
    if (listed.codes) {
      const std::int64_t n = std::int64_t{schedule.place().across} * kTileColumns;
      bring_codes<Order>(listed, min(columns.count(), kPlaces), n, warp, codes);
    } else {
      picker.clear(codes, warp);
      pick_boxes(
          picker, ring, turn * static_cast<std::uint32_t>(boxes), 0, boxes, warp,
          [&](int stage) { return ring.second(stage); }, codes);
    }
    cuda::show_to_products();
    cuda::named_barrier_arrive(barriers.full, kPickThreads);
  }
}

template <OutlierSums kLists>
__device__ __forceinline__ void multiply_group(const TileArgsOf<kLists>& args,
                                               const TileShape::Stages& ring,
                                               std::uint8_t* staging) {
  const int group = cuda::uniform(static_cast<int>(threadIdx.x) / kGroupThreads - 1);
  const int warp = threadIdx.x / cuda::kWarp % kGroupWarps, lane = threadIdx.x % cuda::kWarp;
  const int boxes = args.operands.k_blocks;
  int* own = reinterpret_cast<int*>(staging + group * TileShape::kPassBytes);
  int* staging = own + warp * kStagingSums;
  auto outliers = outliers_of<kLists>(args, own, group);
  const bool has_steps = outliers.has_steps();
  TileSums sums;
  std::uint32_t turn = group;
#pragma unroll 1
  for (TileSchedule schedule(args, group, 2); schedule.has_tile(); schedule.advance(), turn += 2) {
    const TilePlace place = schedule.place();
    const std::int64_t m = std::int64_t{place.down} * kTileRows + warp * kWarpRows;
    const std::int64_t n = std::int64_t{place.across} * kTileColumns;
    touch(args.outputs, place.batch, m + own_row(lane), n + 4 * lane);
    outliers.begin(args.outputs, place.batch, m);
    TileShape::Stages::Cursor cursor(turn * static_cast<std::uint32_t>(boxes));
    if (turn > 0) cuda::named_barrier_wait(kTurn + group, 2 * kGroupThreads);
    const auto before = [&](int box) {
      if (has_steps && turn > 0 && box == min(kStepsBox, boxes - 1))
        cuda::named_barrier_wait(kStepsDone + group, 2 * kGroupThreads);
    };
    const auto issued = [&] {
      if (schedule.has_next()) cuda::named_barrier_arrive(kTurn + (group ^ 1), 2 * kGroupThreads);
    };
    const auto multiply = [&]<bool kFirstUnsigned, bool kSecondUnsigned>() {
      sum_stages<kFirstUnsigned, kSecondUnsigned, kTilesEach, kTileColumns>(sums, ring, cursor,
                                                                            boxes, before, issued);
    };
    const auto finish = [&](const auto& out) {
      finish_sums(out, staging, sums, args.outputs.rows, m, n);
    };
    if constexpr (kLists != OutlierSums::None) {
      multiply.template operator()<false, false>();
      scale_rows(sums, outliers.scales);
      outliers.add(sums, args.outputs, place.batch, m, n);
      if (has_steps && schedule.has_next())
        cuda::named_barrier_arrive(kStepsDone + (group ^ 1), 2 * kGroupThreads);
      finish(ScaledOutputs<float, SumsAre::Scaled>(args.outputs, place.batch));
    } else {
      with_types(args.operands, multiply);
      with_outputs(args.outputs, place.batch, finish);
    }
  }
}

// A grid of any number of blocks; block i computes tiles i, i + blocks, ...
template <OutlierSums kLists>
__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_tiles(const __grid_constant__ TileArgsOf<kLists> args) {
  constexpr bool kHasList = kLists != OutlierSums::None;
  extern __shared__ __align__(1024) std::uint8_t shared[];
  cuda::Barrier* barriers = reinterpret_cast<cuda::Barrier*>(shared + TileShape::kBarriersAt);
  const TileShape::Stages ring{shared, barriers, barriers + TileShape::kStages};
  std::uint8_t* staging = shared + TileShape::kStagingAt;
  if (threadIdx.x == 0) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    ring.open(TileShape::Stages::releases(picks_from_boxes(args)));
    cuda::prefetch_map(args.operands.first);
    cuda::prefetch_map(args.operands.second);
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    // What these give up is what the others get.
    cuda::lower_registers<kHasList ? 56 : 40>();
    const int warp = cuda::uniform(static_cast<int>(threadIdx.x) / cuda::kWarp);
    if (threadIdx.x == 0) copy_tiles<TileShape>(args, ring);
    if constexpr (kHasList)
      if (warp > 0) bring_tiles<typename TilesOf<kLists>::Order>(args, ring, staging, warp - 1);
  } else {
    cuda::raise_registers<kHasList ? 224 : 232>();
    multiply_group<kLists>(args, ring, staging);
  }
}

// --- Few tokens ---------------------------------------------------------------------------------

struct FewRowsArgs {
  OperandMaps operands;  // weights first
  Outputs outputs;
  int down, across;  // clusters along the rows and columns
};
struct OutlierFewRowsArgs : FewRowsArgs {
  OutlierList listed;
};

inline constexpr int kFewRowsColumns = 128;                // of the output, which are weights' rows
inline constexpr int kFewRowsPitch = kFewRowsColumns + 4;  // padded against bank conflicts
// With a list, warps pick codes from it, beside those that multiply and the one that copies.
template <OutlierSums kLists>
inline constexpr int kFewRowsThreads =
    kGroupThreads + (kLists == OutlierSums::None ? 1 : 1 + kPickWarps) * cuda::kWarp;
// Of these, those that read the stages.
template <OutlierSums kLists>
inline constexpr int kReadersOf =
    kGroupThreads + (kLists == OutlierSums::None ? 0 : kPickWarps) * cuda::kWarp;

// kResident blocks at a time on a multiprocessor. With outliers there is room for their codes.
template <int kTokens, int kResident, bool kListed = false>
struct FewRowsShape {
  static constexpr int kMostStages = kTokens <= 16 ? 6 : kTokens <= 32 ? 5 : kTokens <= 64 ? 4 : 3;
  static constexpr int kStages =
      (kListed && kTokens <= 32 ? kMostStages - 1 : kMostStages) * (2 / kResident);
  using Stages = Ring<kFewRowsColumns, kTokens, kStages>;
  // The sums of a block, token by token, lie where the stages were.
  static constexpr int kSumBytes = kTokens * kFewRowsPitch * static_cast<int>(sizeof(int));
  static constexpr int kCodesAt = Stages::kBytes;
  static constexpr int kBarriersAt = kCodesAt + (kListed ? kCodeBytes : 0);
  static constexpr int kSharedBytes =
      kBarriersAt + 2 * kStages * static_cast<int>(sizeof(cuda::Barrier));
  static_assert(kSumBytes + (kListed ? kGroupWarps * kStagedBytes : 0) <= Stages::kBytes);
  static_assert(kResident * (kSharedBytes + 1024) <= 228 * 1024);
};

template <OutlierSums kLists>
using SharesOf = std::conditional_t<kLists == OutlierSums::Tensor, ShareSteps, ShareOutliers>;
template <OutlierSums kLists>
using FewRowsArgsOf =
    std::conditional_t<kLists == OutlierSums::None, FewRowsArgs, OutlierFewRowsArgs>;

template <int kTokens>
__device__ __forceinline__ void keep_sums(int* to, const int (&sums)[2][kTokens / 2]) {
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  to += warp * kWarpRows + lane / 4 + lane % 4 * 2 * kFewRowsPitch;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile)
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i)
      to[(i / 4 * 8 + i % 2) * kFewRowsPitch + tile * cuda::kProductRows + i % 4 / 2 * 8] =
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
            cuda::shared_address(sums + min(token + j * step, tokens - 1) * kFewRowsPitch), block);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        totals[j] = make_uint4(totals[j].x + parts[j].x, totals[j].y + parts[j].y,
                               totals[j].z + parts[j].z, totals[j].w + parts[j].w);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (token + j * step < tokens)
        *reinterpret_cast<uint4*>(sums + (token + j * step) * kFewRowsPitch) = totals[j];
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

// A barrier of all threads of a block that has a list: the codes of its first places are complete.
inline constexpr int kCodesComplete = 2;

// Finishes this block's share of the tokens, from row m and column n of the output on.
template <OutlierSums kLists, class Out, class Outliers>
__device__ __forceinline__ void finish_share(const Out& out, const Outputs& outputs, int* sums,
                                             const Share& share, int tokens, std::int64_t m,
                                             std::int64_t n, Outliers outliers) {
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const int first = share.first(warp), step = share.step();
  n += 4 * lane;
  const int count = max(tokens - first + step - 1, 0) / step;
  int* own = sums + first * kFewRowsPitch + 4 * lane;
  const OutlierRows listed{own, step * kFewRowsPitch, count, m + first, step};
  if constexpr (kLists != OutlierSums::None) outliers.ask(listed);
  const auto columns = out.columns(n);
  const auto rows = out.row(m + first + lane * step);  // lane i has the warp's row number i
  cuda::cluster_barrier();
  if (share.parts > 1) add_shares(sums, share.parts, first, step, tokens);
  if constexpr (kLists != OutlierSums::None)
    if (share.first(0) < tokens) {  // of any warp
      cuda::named_barrier_wait(kCodesComplete, kFewRowsThreads<kLists>);
      outliers.add(listed, rows.scale, outputs.columns);
    }
  out.finish({own, step * kFewRowsPitch, count, 0, m + first, step, n}, rows, columns);
}

// The weight's boxes for the stages that nobody has used yet, up to `boxes` of them, and then what
// the kernel before writes: copy(box, stage, its barrier). Returns how many there are.
template <class Ring, class Copy>
__device__ __forceinline__ int copy_ahead(const Ring& ring, int boxes, const Copy& copy) {
  const int count = min(boxes, Ring::kCount);
#pragma unroll 1
  for (int box = 0; box < count; ++box) {
    ring.full[box].arrive_and_expect(Ring::kStageBytes);
    copy(box, box, ring.full[box]);
  }
  cuda::wait_for_previous();
  return count;
}

// The thread that fills the ring with boxes [first, last) along k: weights from row n, tokens from
// row m on.
template <class Ring>
__device__ __forceinline__ void copy_few_rows(const OperandMaps& operands, const Ring& ring,
                                              int batch, int first, int last, int n, int m) {
  const auto copy_weight = [&](int box, int stage, const cuda::Barrier& full) {
    cuda::copy_box(ring.first(stage), operands.first, (first + box) * cuda::kBoxBytes, n,
                   batch * operands.first_step, full);
  };
  int ahead = 0;
  if (operands.waits == Waits::ForInput) ahead = copy_ahead(ring, last - first, copy_weight);
  typename Ring::Cursor cursor;
#pragma unroll 1
  for (int box = 0; box < last - first; ++box) {
    cuda::Barrier& full = ring.full[cursor.stage];
    if (box >= ahead) {
      ring.empty[cursor.stage].wait(cursor.parity ^ 1);
      full.arrive_and_expect(Ring::kStageBytes);
      copy_weight(box, cursor.stage, full);
    }
    cuda::copy_box(ring.second(cursor.stage), operands.second, (first + box) * cuda::kBoxBytes, m,
                   batch * operands.second_step, full);
    cursor.advance();
  }
}

// What the four warps that multiply do: over `boxes` stages, for the output from row m and column n
// on.
template <int kTokens, OutlierSums kLists, class Ring>
__device__ __forceinline__ void multiply_share(const FewRowsArgsOf<kLists>& args, const Ring& ring,
                                               const Share& share, int batch, int boxes,
                                               std::int64_t m, std::int64_t n,
                                               std::uint16_t* codes) {
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const std::int64_t own_row = m + share.first(warp) + lane * share.step();
  touch(args.outputs, batch, own_row, n + 4 * lane);
  if constexpr (kLists != OutlierSums::None)
    touch_values(args.listed, args.listed.capacity, args.outputs, batch, own_row);
  int sums[2][kTokens / 2];
  // A block without a part of k adds zeros.
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) sums[0][i] = sums[1][i] = 0;
  const auto multiply = [&]<bool kFirstUnsigned, bool kSecondUnsigned>() {
    sum_stages<kFirstUnsigned, kSecondUnsigned, 2, kTokens>(
        sums, ring, typename Ring::Cursor(), cuda::uniform(boxes), [](int) {}, [] {});
  };
  if constexpr (kLists != OutlierSums::None)
    multiply.template operator()<false, false>();
  else
    with_types(args.operands, multiply);
  // The stages are written over once every warp is done with them.
  cuda::named_barrier_wait(1, kReadersOf<kLists>);
  int* held = reinterpret_cast<int*>(ring.stages);
  keep_sums<kTokens>(held, sums);
  const auto tokens = static_cast<int>(min(std::int64_t{kTokens}, args.outputs.rows - m));
  const auto finish = [&](const auto& out, const auto& outliers) {
    finish_share<kLists>(out, args.outputs, held, share, tokens, m, n, outliers);
  };
  if constexpr (kLists != OutlierSums::None) {
    float* staged = reinterpret_cast<float*>(held + kTokens * kFewRowsPitch) +
                    warp * (kStagedBytes / static_cast<int>(sizeof(float)));
    finish(ScaledOutputs<float, SumsAre::Scaled>(args.outputs, batch),
           SharesOf<kLists>(args.listed, codes, SharePlace{batch, n}, staged));
  } else {
    with_outputs(args.outputs, batch, [&](const auto& out) { finish(out, NoOutliers{}); });
  }
}

// What the other warps of a block with a list do, the first of which has copied: the others pick
// the codes of this block's part of k, and all together get the rest from the cluster's other
// blocks, if this block has tokens to finish.
template <OutlierSums kLists, class Ring>
__device__ __forceinline__ void pick_share(const OutlierList& listed, const Ring& ring,
                                           const Share& share, int k_blocks, bool has_tokens,
                                           std::uint16_t* codes) {
  using Order = typename SharesOf<kLists>::Order;
  const OutlierColumns columns(listed);
  const int thread = static_cast<int>(threadIdx.x) - kGroupThreads;
  const int warp = cuda::uniform(thread / cuda::kWarp) - 1;
  if (warp >= 0) {
    const Picker<Order> picker(listed, columns);
    const int first = share.box(k_blocks, share.part);
    picker.clear(codes, warp);
    pick_boxes(
        picker, ring, 0, first, share.box(k_blocks, share.part + 1) - first, warp,
        [&](int stage) { return ring.first(stage); }, codes);
    cuda::named_barrier_arrive(1, kReadersOf<kLists>);
  }
  cuda::cluster_barrier();
  if (!has_tokens) return;
  collect_codes(columns, share, k_blocks, thread, codes);
  cuda::named_barrier_arrive(kCodesComplete, kFewRowsThreads<kLists>);
}

// A cluster computes one tile; its blocks split k.
template <int kTokens, int kResident, OutlierSums kLists>
__global__ void __launch_bounds__(kFewRowsThreads<kLists>, kResident)
    multiply_few_rows(const __grid_constant__ FewRowsArgsOf<kLists> args) {
  constexpr bool kListed = kLists != OutlierSums::None;
  using Shape = FewRowsShape<kTokens, kResident, kListed>;
  extern __shared__ __align__(1024) std::uint8_t shared[];
  cuda::Barrier* barriers = reinterpret_cast<cuda::Barrier*>(shared + Shape::kBarriersAt);
  const typename Shape::Stages ring{shared, barriers, barriers + Shape::kStages};
  auto* codes = reinterpret_cast<std::uint16_t*>(shared + Shape::kCodesAt);
  const OperandMaps& operands = args.operands;
  const Share share{cuda::cluster_rank(), cuda::cluster_size()};
  // Tiles of the same weights one after another, so that these come from memory once.
  const std::uint32_t tile = cuda::cluster_index();
  const int down = static_cast<int>(tile % args.down);
  const int across = static_cast<int>(tile / args.down % args.across);
  const int batch = static_cast<int>(tile / args.down / args.across);
  const int first = share.box(operands.k_blocks, share.part);
  const int last = share.box(operands.k_blocks, share.part + 1);
  const std::int64_t m = std::int64_t{down} * kTokens;
  const std::int64_t n = std::int64_t{across} * kFewRowsColumns;
  if (threadIdx.x == 0) {
    if (cuda::shared_address(shared) % 1024 != 0) __trap();
    ring.open(Shape::Stages::releases(kListed));
    cuda::prefetch_map(operands.first);
    cuda::prefetch_map(operands.second);
  }
  __syncthreads();
  if (threadIdx.x >= kGroupThreads) {
    if constexpr (kListed && kResident > 1) cuda::lower_registers<56>();
    const auto copy = [&] {
      if (threadIdx.x == kGroupThreads)
        copy_few_rows(operands, ring, batch, first, last, static_cast<int>(n), static_cast<int>(m));
    };
    if constexpr (kListed) {
      copy();
      pick_share<kLists>(args.listed, ring, share, operands.k_blocks,
                         share.first(0) < args.outputs.rows - m, codes);
    } else {
      copy();
      cuda::cluster_barrier();
    }
  } else {
    if constexpr (kListed && kResident > 1) cuda::raise_registers<200>();
    wait_for_input(operands);
    multiply_share<kTokens, kLists>(args, ring, share, batch, last - first, m, n, codes);
  }
  // No block may end before all have read its sums.
  cuda::cluster_barrier_unordered();
}

}  // namespace planq::linear::sm90
