// Accumulation::GroupsSm90 on the tensor cores of every GPU from sm_80 on (mma.sync): numbers
// without scales are multiplied, and scales meet the sums of runs.
//
// A block computes a tile of outputs as in float_tiles.cuh. The weight is a panel of numbers, whose
// rows are vectors, and has a scale for each column and run. Sums have three levels. A run is a
// chain of mma.sync from +0. At its end, fma adds it to the span under the scale of its column, and
// at the end of a span its sums are added to the totals. Runs and spans lie in registers. Totals
// change eight times at most, so they lie in shared memory, where the epilogue expects them.
//
// The order is the same for every tile, so a row has the same bits whatever the tile. On sm_90 they
// are those of the model.
#pragma once

#include <type_traits>

#include "cuda/divider.cuh"
#include "ops/linear/sm80/float_tiles.cuh"
#include "ops/linear/weight_only/codes.h"

namespace planq::linear {

struct GroupArgs : Sm80Args {
  WeightCodes codes;       // whose scales these are; the weight of `gemm` is some of its rows
  std::int64_t first = 0;  // the first of these rows
  std::int64_t pitch = 0;  // scales from a row to the next
  const float* scales = nullptr;  // null: they are nested
  std::int32_t span = 0;          // terms
  cuda::Divider segment_runs;     // of longest runs: by how many a segment has
};

// What a tile has in shared memory: a ring of stages, a ring of the scales of the runs that end in
// a stage, and the totals. Warps meet the scales of a stage after the barrier behind which its slot
// is written again, so the second ring has a slot more.
template <class Tile, int kRun>
struct GroupShape {
  static constexpr int kTerms = kStageTerms<Tile>, kStages = Tile::kAsyncStages;
  static constexpr int kStepTerms = 16, kSteps = kTerms / kStepTerms;
  static constexpr bool kWithin = kRun <= kTerms;  // a stage has whole runs
  static constexpr int kRuns = kWithin ? kTerms / kRun : 1;
  static constexpr int kRunStages = kWithin ? 1 : kRun / kTerms;
  static constexpr int kStageScales = kRuns * Tile::kN;
  static constexpr int kScalesOffset = kStages * Tile::kStageBytes;
  static constexpr int kTotalsOffset = kScalesOffset + (kStages + 1) * kStageScales * 4;
  static constexpr int kBytes = kTotalsOffset + Tile::kSumsBytes;
  // What comes through registers is stored when a stage ends. A barrier has to follow before it is
  // read.
  static_assert(kStages >= 3 && Tile::kSlices == 1);

  static __device__ __forceinline__ int scales_of(int stage) {
    return stage % (kStages + 1) * kStageScales;
  }

  // Whether a run ends with this stage.
  static __device__ __forceinline__ bool ends_run(int stage, int stages) {
    return (stage + 1) % kRunStages == 0 || stage + 1 == stages;
  }
};

// --- Loading -----------------------------------------------------------------------------------

// The scales of the tile's columns, on their way from global memory to the ring. A thread loads
// those of one column. They are copied asynchronously. Only nested ones, which have to be computed,
// come through registers.
template <class Tile, int kRun>
class RunScales {
  using Shape = GroupShape<Tile, kRun>;
  static constexpr int kStep = Tile::kThreads / Tile::kN;  // runs that all threads load at once
  static constexpr int kLoads = (Shape::kRuns + kStep - 1) / kStep;
  static_assert(kStep * Tile::kN == Tile::kThreads);

 public:
  __device__ __forceinline__ RunScales(const GroupArgs& args, const OutputTile& tile, int terms,
                                       float* shared)
      : args_(args), shared_(shared), terms_(terms) {
    const int column = static_cast<int>(threadIdx.x) % Tile::kN;
    exists_ = column < tile.columns;
    first_ = (args.first + tile.column + column) * args.pitch;
  }
  // Begins to load those of a stage. Where there are none, sums are 0, and so are scales.
  __device__ __forceinline__ void fetch(int stage, int stages) {
    if (!Shape::ends_run(stage, stages)) return;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (run(i) >= Shape::kRuns) continue;
      const int term = stage * Shape::kTerms + run(i) * kRun;
      held_[i] = 0;
      if (!exists_ || term >= terms_)
        *place(stage, i) = 0;
      else if (args_.scales)
        cuda::copy_async<4>(cuda::shared_address_of(place(stage, i)),
                            args_.scales + first_ + segment(term));
      else
        held_[i] = args_.codes.scales.at(first_ + segment(term));
    }
  }
  // Stores what came through registers.
  __device__ __forceinline__ void store(int stage, int stages) const {
    if (args_.scales || !Shape::ends_run(stage, stages)) return;
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      if (run(i) < Shape::kRuns) *place(stage, i) = held_[i];
  }

 private:
  __device__ __forceinline__ float* place(int stage, int load) const {
    return shared_ + Shape::scales_of(stage) + static_cast<int>(threadIdx.x) +
           load * Tile::kThreads;
  }
  static __device__ __forceinline__ int run(int load) {
    return static_cast<int>(threadIdx.x) / Tile::kN + load * kStep;
  }
  // Segments are runs, or whole ones of the longest runs.
  __device__ __forceinline__ std::uint32_t segment(int term) const {
    const auto run = static_cast<std::uint32_t>(term) / kRun;
    return kRun < math::kMostRunTerms ? run : args_.segment_runs.quotient(run);
  }

  const GroupArgs& args_;
  float* shared_;
  std::int64_t first_;
  std::int32_t terms_;
  bool exists_;
  float held_[kLoads] = {};
};

// An input whose rows are vectors: all copies are asynchronous.
template <class Tile>
class VectorInput {
 public:
  static constexpr int kBlocks = Tile::kAsyncBlocks;  // on a multiprocessor
  __device__ __forceinline__ VectorInput(const GroupArgs& args, const Sm80Block<Tile>& block,
                                         int terms, cuda::SharedAddress shared)
      : operand_(block.gemm.input.data + block.tile.row * args.input.stride, args.input,
                 block.tile.rows, terms * 2, shared) {}
  __device__ __forceinline__ void fetch(int, std::uint32_t slot) { operand_.copy(slot); }
  __device__ __forceinline__ void store(std::uint32_t) const {}

 private:
  AsyncOperand<Tile, Tile::kM> operand_;
};

// Any input, through registers.
template <class Tile>
class AnyInput {
 public:
  static constexpr int kBlocks = Tile::kAsyncBlocks > 1 ? Tile::kAsyncBlocks - 1 : 1;
  __device__ __forceinline__ AnyInput(const GroupArgs& args, const Sm80Block<Tile>& block,
                                      int terms, cuda::SharedAddress shared)
      : operand_(block.gemm.input, args.input, block.tile.row, block.tile.rows, terms, shared) {}
  __device__ __forceinline__ void fetch(int stage, std::uint32_t) {
    operand_.fetch(stage * kStageTerms<Tile>);
  }
  __device__ __forceinline__ void store(std::uint32_t slot) const { operand_.store(slot); }

 private:
  PieceOperand<Tile, Tile::kM, NumberPieces> operand_;
};

// All that stages are made of. begin() starts to load a stage. What comes through registers is
// stored by end(), so that the multiplications in between hide the latency.
template <class Tile, int kRun, class Input>
class GroupStages {
 public:
  __device__ __forceinline__ GroupStages(const GroupArgs& args, const Sm80Block<Tile>& block,
                                         int terms, std::uint8_t* shared)
      : count(stages_of<kStageTerms<Tile>>(terms)),
        input_(args, block, terms, cuda::shared_address_of(shared)),
        weight_(block.gemm.weight.data + block.tile.column * args.weight.stride, args.weight,
                block.tile.columns, terms * 2,
                cuda::shared_address_of(shared) + Tile::kWeightOffset),
        scales_(args, block.tile, terms,
                reinterpret_cast<float*>(shared + GroupShape<Tile, kRun>::kScalesOffset)) {}

  static __device__ __forceinline__ std::uint32_t slot_of(int stage) {
    return stage % Tile::kAsyncStages * Tile::kStageBytes;
  }
  __device__ __forceinline__ void begin(int stage) {
    if (stage < count) {
      input_.fetch(stage, slot_of(stage));
      weight_.copy(slot_of(stage));
      scales_.fetch(stage, count);
    }
    cuda::end_copy_group();
  }
  __device__ __forceinline__ void end(int stage) const {
    if (stage >= count) return;
    input_.store(slot_of(stage));
    scales_.store(stage, count);
  }

  const std::int32_t count;

 private:
  Input input_;
  AsyncOperand<Tile, Tile::kN> weight_;
  RunScales<Tile, kRun> scales_;
};

// --- Multiplying -------------------------------------------------------------------------------

// The sums of a warp: those of the current run and of the current span in registers, and the totals
// of the spans before in shared memory.
template <class T, class Tile, int kRun>
class GroupSums {
  using Place = WarpTile<Tile>;
  using Shape = GroupShape<Tile, kRun>;

 public:
  static constexpr int kSteps = Shape::kSteps;  // of a stage
  using Fragments = typename Place::Fragments;

  // `span`: the terms of a span, which are whole stages.
  __device__ __forceinline__ GroupSums(std::uint8_t* shared, int span)
      : place_(cuda::shared_address_of(shared)),
        scales_(reinterpret_cast<const float*>(shared + Shape::kScalesOffset)),
        totals_(reinterpret_cast<float*>(shared + Shape::kTotalsOffset)),
        span_stages_(span / Shape::kTerms),
        left_(span_stages_) {
    place_.each_pair(span_, [&](int row, int column, float, float) {
      *pair_at(row, column) = make_float2(0, 0);
    });
  }

  // Loads a step of the stage in this slot.
  __device__ __forceinline__ void load(std::uint32_t slot, std::uint32_t step,
                                       Fragments& fragments) const {
    place_.load(slot, step, fragments);
  }
  // Adds a step of a stage. The run may end with it.
  __device__ __forceinline__ void add(const Fragments& fragments, int stage, int step) {
    Place::each_block(run_, fragments, [](auto& sums, const auto& a, auto b0, auto b1) {
      cuda::multiply_add_floats<T>(sums, a, b0, b1);
    });
    constexpr int kRunSteps = kRun / Shape::kStepTerms;
    if (Shape::kWithin && step % kRunSteps == kRunSteps - 1) end_run(stage, step / kRunSteps);
  }
  // Called after each stage.
  __device__ __forceinline__ void end_stage(int stage, int stages) {
    if (!Shape::kWithin && Shape::ends_run(stage, stages)) end_run(stage, 0);
    left_ -= 1;
    if (left_ > 0 && stage + 1 < stages) return;
    end_span();
    left_ = span_stages_;
  }

 private:
  __device__ __forceinline__ float2* pair_at(int row, int column) const {
    return reinterpret_cast<float2*>(totals_ + Tile::sums().place(row, column));
  }
  // `number`: that of the run in the stage.
  __device__ __forceinline__ void end_run(int stage, int number) {
    const float* scales = scales_ + Shape::scales_of(stage) + number * Tile::kN;
#pragma unroll
    for (int j = 0; j < Place::kBlocksN; ++j) {
      const float2 own = *reinterpret_cast<const float2*>(scales + place_.column_of(j));
#pragma unroll
      for (int i = 0; i < Place::kBlocksM; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          span_[i][j][k] = math::fused(run_[i][j][k], k % 2 ? own.y : own.x, span_[i][j][k]);
          run_[i][j][k] = 0;
        }
    }
  }
  __device__ __forceinline__ void end_span() {
    place_.each_pair(span_, [&](int row, int column, float first, float second) {
      float2* const pair = pair_at(row, column);
      *pair = make_float2(pair->x + first, pair->y + second);
    });
    memset(span_, 0, sizeof span_);
  }

  Place place_;
  const float* scales_;
  float* totals_;
  std::int32_t span_stages_, left_;
  typename Place::template Sums<float> run_ = {}, span_ = {};
};

// --- Kernels -----------------------------------------------------------------------------------

// The ring is filled some stages ahead. Within a stage, fragments of a step are loaded before the
// step before it is multiplied.
template <class Tile, class Stages, class Sums>
__device__ __forceinline__ void copy_and_fold(Stages& stages, Sums& warp) {
  constexpr int kAhead = Tile::kAsyncStages - 1, kSteps = Sums::kSteps;
  typename Sums::Fragments fragments[2];
#pragma unroll 1
  for (int stage = 0; stage < kAhead; ++stage) {
    stages.begin(stage);
    stages.end(stage);
  }
  cuda::wait_for_copy_groups<kAhead - 1>();
  __syncthreads();
  if (stages.count > 0) warp.load(Stages::slot_of(0), 0, fragments[0]);
#pragma unroll 1
  for (int stage = 0; stage < stages.count; ++stage) {
    stages.begin(stage + kAhead);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) {
        warp.load(Stages::slot_of(stage), step + 1, fragments[(step + 1) % 2]);
      } else {
        // At the barrier every warp has loaded its last fragments of this stage, so the next copy
        // may overwrite its slot.
        cuda::wait_for_copy_groups<kAhead - 1>();
        __syncthreads();
        if (stage + 1 < stages.count) warp.load(Stages::slot_of(stage + 1), 0, fragments[0]);
      }
      warp.add(fragments[step % 2], stage, step);
    }
    warp.end_stage(stage, stages.count);
    stages.end(stage + kAhead);
  }
  cuda::wait_for_copy_groups<0>();
}

// Input: VectorInput or AnyInput.
template <class T, class Tile, int kRun, class Input>
__global__ void __launch_bounds__(Tile::kThreads, Input::kBlocks)
    multiply_groups(const __grid_constant__ GroupArgs args) {
  auto* const shared = static_cast<std::uint8_t*>(cuda::dynamic_shared());
  const Sm80Block<Tile> block(args);
  GroupStages<Tile, kRun, Input> stages(args, block, static_cast<std::int32_t>(block.gemm.k),
                                        shared);
  GroupSums<T, Tile, kRun> warp(shared, args.span);
  copy_and_fold<Tile>(stages, warp);
  __syncthreads();
  const auto* totals =
      reinterpret_cast<const std::int32_t*>(shared + GroupShape<Tile, kRun>::kTotalsOffset);
  store_float_tile(block.gemm, block.tile, Tile::sums(), totals, args.stores_vectors);
}

}  // namespace planq::linear
