// linear_gguf of few rows of the input, on mma.sync. It takes as long as the weight takes to read.
//
// A block has some neighbouring tiles of 16 rows of the weight, and goes through them in rounds: a
// few tiles, with a chunk of the spans of a row. A tile and a span are an item. The warps share out
// the items of a round, each some neighbours, tile after tile of a span. A warp begins to copy
// items to shared memory long before it computes them, whatever the others do, and keeps the span
// of the input in registers. The sums of a round's items meet in shared memory, where those of an
// output are added up in the order of the spans.
#pragma once

#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/mbarrier.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/tensor_map.cuh"
#include "ops/gguf/linear_gguf/few_rows_copies.cuh"
#include "ops/gguf/linear_gguf/few_rows_item.cuh"

namespace planq::linear_gguf {

// --- A warp --------------------------------------------------------------------------------------

template <class Tile>
using Copies = std::conditional_t<Tile::kBoxes, BoxCopies<Tile>, VectorCopies<Tile>>;

// Computes a warp's items. `moved`: what the gemm of a batch has of its own, in shared memory.
template <class Tile>
class Items {
  using B = typename Tile::B;

 public:
  __device__ __forceinline__ Items(const FewRowsArgs& args, const Share& share, const Part& part,
                                   const Moved& moved, int warp, std::uint8_t* shared)
      : args_(args),
        share_(share),
        part_(part),
        moved_(moved),
        walk_(args, share, part, warp),
        chains_(cuda::shared_address_of(shared + args.shape.scratch + warp * Tile::kScratchBytes),
                args.shape.pitch, [&](int place) { return row_of_place(args, place); }),
        ring_(cuda::shared_address_of(shared) + stage_bytes<Tile>(args, warp * args.shape.stages)),
        slot_(shared + args.shape.slots + warp * args.rows * Tile::kRecordBytes) {
    cuda::keep(ring_);
    stage_address_ = ring_;
    if (walk_.exists()) copy_input(walk_);
    cuda::end_copy_group();
  }

  // Computes the warp's items of a round. `sums`: where those of all items go.
  __device__ __forceinline__ void compute(const Round& round, cuda::SharedAddress sums,
                                          Copies<Tile>& copies) {
    sums_ = sums;
#pragma unroll 1
    while (walk_.exists() && walk_.round == round) {
      compute_run(copies);
      walk_.leave_run(args_, share_, part_);
    }
  }

 private:
  __device__ __forceinline__ void compute_run(Copies<Tile>& copies) {
    const int span = walk_.whole_span();
    bool enters = span != span_ || walk_.round.row != row_;
    ItemPlace item;
    item.groups = groups_of(span);
    const int sum_bytes = 4 * Tile::sum_floats(args_.rows),
              tile_bytes = args_.shape.spans * sum_bytes;
    int tile = walk_.whole_tile();
    item.sums = sums_ + address(walk_.item * Tile::kTiles * tile_bytes + walk_.span * sum_bytes);
    find_past(item, tile, span);
#pragma unroll 1
    for (int left = walk_.count(args_, share_); left > 0; --left) {
      copies.wait(stage_, enters && since_ < args_.shape.stages);
      __syncwarp();
      if (enters) enter_span();
      enters = false;
      if constexpr (!Tile::kBoxes) find_past(item, tile, span);
      item.stage = stage_address_;
      cuda::keep(item.stage);
      item.next_sums = item.sums + address(tile_bytes);
      item.second = Tile::kTiles == 2 && tile + 1 < share_.behind;
      chains_.compute(item, input_, args_.rows);
      __syncwarp();
      copies.leave(stage_);
      leave_stage();
      tile += Tile::kTiles;
      item.sums += address(Tile::kTiles * tile_bytes);
    }
  }
  __device__ __forceinline__ void leave_stage() {
    ++since_;
    ++stage_;
    stage_address_ += stage_bytes<Tile>(args_, 1);
    if (stage_ < args_.shape.stages) return;
    stage_ = 0;
    stage_address_ = ring_;
  }
  __device__ __forceinline__ int groups_of(int span) const {
    return span == args_.spans - 1 ? args_.last_groups : kSpan / kGroup;
  }
  __device__ __forceinline__ void copy_input(const Walk<Tile::kTiles>& walk) {
    InputSlot<Tile>(slot_).copy(args_.gemm, moved_, walk.whole_span(), groups_of(walk.whole_span()),
                                walk.round.row, args_.rows, args_.has_input_vectors);
    since_ = 0;
  }
  // Loads the run's span of the input, and begins to copy the next one.
  __device__ __forceinline__ void enter_span() {
    if constexpr (Tile::kBoxes) {
      cuda::wait_for_copy_groups<0>();
      __syncwarp();
    }
    span_ = walk_.whole_span();
    row_ = walk_.round.row;
    InputSlot<Tile>(slot_).load(input_, args_.rows);
    Walk<Tile::kTiles> next = walk_;
    next.leave_span(args_, share_, part_);
    if (next.exists()) copy_input(next);
    if constexpr (Tile::kBoxes) cuda::end_copy_group();
  }
  // Of a tile's span. By boxes, all tiles are alike, and so are the first eight places of a tile,
  // and the others.
  __device__ __forceinline__ void find_past(ItemPlace& item, int tile, int span) const {
    const int place = place_of_row(own_lane() / 4), own = ItemChains<Tile>::own_row();
    const int places[3] = {place, place + 8, own % Tile::kWeights};
#pragma unroll
    for (int i = 0; i < 3; ++i)
      item.past[i] = static_cast<unsigned>(
          cuda::misalignment<16>(row_of(args_.gemm, tile, row_of_place(args_, places[i])) +
                                 int64_t{span} * Tile::kSpanBytes));
  }

  const FewRowsArgs& args_;
  const Share& share_;
  const Part& part_;
  const Moved& moved_;
  Walk<Tile::kTiles> walk_;
  ItemChains<Tile> chains_;
  ItemInput<Tile> input_;
  cuda::SharedAddress ring_, stage_address_;
  std::uint8_t* slot_;
  cuda::SharedAddress sums_;
  int span_ = -1, row_ = -1;   // of input_
  int stage_ = 0, since_ = 0;  // since_: items since the last copy of a span of the input
};

// --- Outputs -------------------------------------------------------------------------------------

// Four neighbouring outputs of a row.
class RoundSums {
 public:
  // number: of these four in a round with `rows` rows of the input.
  __device__ __forceinline__ RoundSums(int number, int rows) : column_(number % 4 * 4) {
    tile_ = number / 4 / rows;
    row_ = number / 4 - tile_ * rows;
  }
  // `sums`: of the round's items, each with `item_floats`.
  __device__ __forceinline__ void add(const FewRowsArgs& args, const Round& round, int tiles,
                                      const float* sums, int item_floats) {
    if (tile_ >= tiles) return;
    const float* own = sums + tile_ * args.shape.spans * item_floats + place_of_sum(row_, column_);
    const int spans = round.spans(args);
#pragma unroll 4
    for (int i = 0; i < spans; ++i, own += item_floats) {
      float four[4];
      load_four_floats(own, four);
#pragma unroll
      for (int j = 0; j < 4; ++j) totals_[j] += four[j];
    }
  }
  __device__ __forceinline__ void store(const Gemm& gemm, const Round& round, int tiles,
                                        bool vectors) {
    const int64_t row = round.row + row_;
    if (tile_ < tiles && row < gemm.m)
      store_four(gemm, row, int64_t{round.tile + tile_} * 16 + column_, totals_, vectors);
#pragma unroll
    for (float& total : totals_) total = 0;
  }

 private:
  int tile_, row_, column_;
  float totals_[4] = {};
};

// --- The kernel ----------------------------------------------------------------------------------

// Of a round's place in shared memory: that all warps have written their sums, and that all have
// added up theirs.
struct RoundBarriers {
  cuda::Barrier written, added;
};
struct FewRowsBarriers {
  RoundBarriers rounds[kMostRounds];
  cuda::Barrier stages[kMostWarps * kMostStages];  // of BoxCopies
};

// The number of a round, its place, and the parity of the phases of its barriers.
template <int kRounds>
struct RoundNumber {
  int number = 0, place = 0, parity = 0;

  __device__ __forceinline__ void next() {
    ++number;
    if (++place < kRounds) return;
    place = 0;
    parity ^= 1;
  }
};

// A block's rounds. Folded, one warp adds up the sums of some tiles, each time another one, when it
// has computed its items of the next round. Otherwise all threads do, before the next round.
template <class Tile>
class Rounds {
 public:
  __device__ __forceinline__ Rounds(const FewRowsArgs& args, const Share& share, const Moved& moved,
                                    int warp, RoundBarriers* barriers, std::uint8_t* shared)
      : args_(args),
        share_(share),
        moved_(moved),
        warp_(warp),
        barriers_(barriers),
        sums_(shared + args.shape.sums),
        round_(share),
        added_(share),
        outputs_(Tile::kFolded ? own_lane() : static_cast<int>(threadIdx.x), args_.rows) {}

  __device__ __forceinline__ void compute(Items<Tile>& items, Copies<Tile>& copies) {
#pragma unroll 1
    for (; round_.exists(share_); round_.next(args_)) {
      if (number_.number >= Tile::kRounds) barriers_[number_.place].added.wait(number_.parity ^ 1);
      items.compute(round_, cuda::shared_address_of(sums(number_)), copies);
      __syncwarp();
      if (own_lane() == 0) barriers_[number_.place].written.arrive();
      number_.next();
      if (number_.number > kAhead) add_round();
    }
    if (number_.number > 0 && kAhead > 0) add_round();
  }

 private:
  using Number = RoundNumber<Tile::kRounds>;
  static constexpr int kAhead = Tile::kRounds > 1 ? 1 : 0;

  __device__ __forceinline__ std::uint8_t* sums(const Number& number) const {
    return sums_ + number.place * args_.shape.round_bytes;
  }
  // Goes to the next round that is to be added up.
  __device__ __forceinline__ void add_round() {
    if (!Tile::kFolded || adding_warp_ == warp_) add();
    if (added_.ends_row(args_) && ++adding_warp_ == 1 << args_.shape.warp_shift) adding_warp_ = 0;
    added_.next(args_);
    added_number_.next();
  }
  __device__ __forceinline__ void add() {
    RoundBarriers& barriers = barriers_[added_number_.place];
    barriers.written.wait(added_number_.parity);
    const int tiles = added_.tiles(args_, share_);
    outputs_.add(args_, added_, tiles, reinterpret_cast<const float*>(sums(added_number_)),
                 Tile::sum_floats(args_.rows));
    if (added_.ends_row(args_)) {
      Gemm own = args_.gemm;
      own.output = moved_.output;
      own.epilogue.residual = moved_.residual;
      outputs_.store(own, added_, tiles, args_.stores_vectors);
    }
    __syncwarp();
    if (own_lane() == 0) barriers.added.arrive();
  }

  const FewRowsArgs& args_;
  const Share& share_;
  const Moved& moved_;
  int warp_;
  RoundBarriers* barriers_;
  std::uint8_t* sums_;
  Round round_, added_;
  Number number_, added_number_;
  int adding_warp_ = 0;
  RoundSums outputs_;
};

template <class Tile>
__device__ __forceinline__ void multiply_share(const FewRowsArgs& args,
                                               const cuda::TensorMap& weight) {
  __shared__ Moved moved;
  __shared__ FewRowsBarriers barriers;
  // Of warps, which need them now and then: registers are for what they always need.
  __shared__ Share own_shares[kMostWarps];
  __shared__ Part own_parts[kMostWarps];
  // TMA writes boxes to multiples of 128 bytes.
  auto* const dynamic = static_cast<std::uint8_t*>(cuda::dynamic_shared());
  std::uint8_t* const shared = dynamic + (-cuda::shared_address_of(dynamic) & 127);
  // The same in all lanes, which the compiler does not know.
  const int warp = __shfl_sync(cuda::kAllLanes, own_warp(), 0);
  if (own_lane() == 0) {
    own_shares[warp] = Share(args);
    own_parts[warp] =
        Part(args, (args.shape.tiles + Tile::kTiles - 1) / Tile::kTiles, args.shape.spans, warp);
  }
  __syncwarp();
  if (!args.follows) cuda::follow_previous();
  const Share& share = own_shares[warp];
  const Part& part = own_parts[warp];
  Copies<Tile> copies(
      args, weight, share, part, warp,
      cuda::shared_address_of(shared) + stage_bytes<Tile>(args, warp * args.shape.stages),
      barriers.stages + warp * kMostStages);
  if (threadIdx.x == 0) {
    for (RoundBarriers& round : barriers.rounds) {
      round.written.init(1 << args.shape.warp_shift);
      round.added.init(Tile::kFolded ? 1 : 1 << args.shape.warp_shift);
    }
    moved.find(args.gemm, args.first_gemm + blockIdx.x / args.blocks);
  }
  if (args.follows) cuda::wait_for_previous();
  __syncthreads();
  Items<Tile> items(args, share, part, moved, warp, shared);
  Rounds<Tile>(args, share, moved, warp, barriers.rounds, shared).compute(items, copies);
}

template <class Tile>
__global__ void __launch_bounds__(kMostWarps* cuda::kWarp, 1)
    multiply_few_rows(const __grid_constant__ FewRowsArgs args) {
  multiply_share<Tile>(args, {});
}

struct BoxedFewRowsArgs {
  FewRowsArgs rows;
  cuda::TensorMap weight;
};
template <class Tile>
__global__ void __launch_bounds__(kMostWarps* cuda::kWarp, 1)
    multiply_few_boxed_rows(const __grid_constant__ BoxedFewRowsArgs args) {
#if PLANQ_HAS_CLUSTERS || !defined(__CUDA_ARCH__)
  multiply_share<Tile>(args.rows, args.weight);
#endif
}

}  // namespace planq::linear_gguf
