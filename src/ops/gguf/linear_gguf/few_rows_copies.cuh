// Copies of items of the weight to shared memory, which a warp begins long before it needs them.
#pragma once

#include <cstdint>

#include "cuda/memory_access.cuh"
#include "cuda/mma.cuh"
#include "cuda/tensor_map.cuh"
#include "ops/gguf/linear_gguf/few_rows_item.cuh"
#include "ops/gguf/linear_gguf/few_rows_walk.cuh"

namespace planq::linear_gguf {

template <class Tile>
__device__ __forceinline__ cuda::SharedAddress stage_bytes(const FewRowsArgs& args, int stages) {
  return static_cast<cuda::SharedAddress>(stages * args.shape.pitch * Tile::kStageRows);
}

// The row of a tile that is in row `place` of a stage.
__device__ __forceinline__ int row_of_place(const FewRowsArgs& args, int place) {
  const int shift = 4 - args.phase_shift;
  return ((place & ((1 << shift) - 1)) << args.phase_shift) + (place >> shift);
}

// By boxes of TMA. Rows of its matrix are one row of the weight, or two where they are not a
// multiple of 16 bytes apart: then a tile has two boxes, first of its even rows and then of the odd
// ones.
template <class Tile>
class BoxCopies {
 public:
  // stages: barriers of the warp, one for each stage.
  __device__ __forceinline__ BoxCopies(const FewRowsArgs& args, const cuda::TensorMap& weight,
                                       const Share& share, const Part& part, int warp,
                                       cuda::SharedAddress ring, cuda::Barrier* stages)
      : args_(args),
        weight_(weight),
        share_(share),
        part_(part),
        walk_(args, share, part, warp),
        ring_(ring),
        stages_(stages) {
    enter_run();
    if (own_lane() == 0) {
      for (int i = 0; i < args.shape.stages; ++i) stages[i].init(1);
      cuda::publish_barriers();
    }
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < args.shape.stages; ++i) leave(i);
  }

  // Until the next item that was begun is there.
  __device__ __forceinline__ void wait(int stage, bool) {
    stages_[stage].wait(parity_);
    if (stage + 1 == args_.shape.stages) parity_ ^= 1;
  }
  // The stage is free: begins to copy the next item, if there is one.
  __device__ __forceinline__ void leave(int stage) {
    if (left_ == 0) return;
    if (cuda::is_elected()) copy(stage);
    tile_ += Tile::kTiles;
    if (--left_ > 0) return;
    walk_.leave_run(args_, share_, part_);
    enter_run();
  }

 private:
  __device__ __forceinline__ void enter_run() {
    left_ = walk_.exists() ? walk_.count(args_, share_) : 0;
    tile_ = walk_.whole_tile();
    // TMA wants the first byte to be at an aligned vector.
    constexpr int kVector = 16 / Tile::kBoxUnit;
    column_ = args_.first_column + walk_.whole_span() * (Tile::kSpanBytes / Tile::kBoxUnit);
    second_column_ = column_ + static_cast<int>(args_.gemm.weight.row_stride) / Tile::kBoxUnit;
    column_ -= column_ % kVector;
    second_column_ -= second_column_ % kVector;
  }
  __device__ __forceinline__ void copy(int stage) const {
    cuda::Barrier& barrier = stages_[stage];
    const bool second = Tile::kTiles == 2 && tile_ + 1 < share_.behind;
    const int bytes = Tile::kWeights * args_.shape.pitch;
    barrier.arrive_and_expect(second ? 2 * bytes : bytes);
    const cuda::SharedAddress to = ring_ + stage_bytes<Tile>(args_, stage);
    copy_tile(to, tile_, barrier);
    if (second) copy_tile(to + static_cast<cuda::SharedAddress>(bytes), tile_ + 1, barrier);
  }
  __device__ __forceinline__ void copy_tile(cuda::SharedAddress to, int tile,
                                            const cuda::Barrier& barrier) const {
    const int rows = Tile::kWeights >> args_.phase_shift;
    cuda::copy_box(to, weight_, column_, tile * rows, 0, barrier);
    if (args_.phase_shift > 0)
      cuda::copy_box(to + static_cast<cuda::SharedAddress>(rows * args_.shape.pitch), weight_,
                     second_column_, tile * rows, 0, barrier);
  }

  const FewRowsArgs& args_;
  const cuda::TensorMap& weight_;
  const Share& share_;
  const Part& part_;
  Walk<Tile::kTiles> walk_;
  int left_, tile_, column_, second_column_;  // items of the run, and the next one
  cuda::SharedAddress ring_;
  cuda::Barrier* stages_;
  int parity_ = 0;
};

// By vectors, of rows that begin anywhere. Neighbouring lanes have neighbouring vectors of a row.
template <class Tile>
class VectorCopies {
  static constexpr int kVectors = Tile::kVectors, kAll = Tile::kWeights * kVectors;
  static constexpr int kPitch = Tile::kLeastPitch;
  static constexpr int kOwn = (kAll + cuda::kWarp - 1) / cuda::kWarp;  // of a lane, at most

 public:
  __device__ __forceinline__ VectorCopies(const FewRowsArgs& args, const cuda::TensorMap&,
                                          const Share& share, const Part& part, int warp,
                                          cuda::SharedAddress ring, cuda::Barrier*)
      : args_(args), share_(share), part_(part), walk_(args, share, part, warp), ring_(ring) {
    enter_run();
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      offsets_[i] = row(i) * static_cast<int>(args.gemm.weight.row_stride) + vector(i) * 16;
#pragma unroll 1
    for (int i = 0; i < args.shape.stages; ++i) leave(i);
  }

  // The stage is free: begins to copy the next item, if there is one.
  __device__ __forceinline__ void leave(int stage) {
    if (left_ > 0) {
      const cuda::SharedAddress to = ring_ + stage_bytes<Tile>(args_, stage);
#pragma unroll
      for (int i = 0; i < Tile::kTiles; ++i)
        if (tile_ + i < share_.behind)
          copy_tile(to + static_cast<cuda::SharedAddress>(i * Tile::kWeights * kPitch), tile_ + i);
      tile_ += Tile::kTiles;
      if (--left_ == 0) {
        walk_.leave_run(args_, share_, part_);
        enter_run();
      }
    }
    cuda::end_copy_group();
  }
  // Until the next item that was begun is there. `all`: and all other copies of this thread.
  __device__ __forceinline__ void wait(int, bool all) const {
    const int stages = args_.shape.stages;
    if (all)
      cuda::wait_for_copy_groups<0>();
    else if (stages == 2)
      cuda::wait_for_copy_groups<1>();
    else if (stages == 3)
      cuda::wait_for_copy_groups<2>();
    else
      cuda::wait_for_copy_groups<3>();
  }

 private:
  __device__ __forceinline__ void enter_run() {
    left_ = walk_.exists() ? walk_.count(args_, share_) : 0;
    tile_ = walk_.whole_tile();
    span_ = walk_.whole_span();
  }
  __device__ __forceinline__ void copy_tile(cuda::SharedAddress to, int tile) const {
    const bool may_end = span_ + 1 == args_.spans && (tile == 0 || tile + 1 == args_.tiles);
    if (args_.has_usual_stride && span_ < args_.whole_spans && tile < args_.whole_tiles && !may_end)
      copy_whole(to, tile);
    else
      copy(to, tile);
  }
  // Of the lane's vector i, the row, and the number in the row.
  __device__ __forceinline__ static int row(int i) { return (own_lane() + i * 32) / kVectors; }
  __device__ __forceinline__ static int vector(int i) { return (own_lane() + i * 32) % kVectors; }
  __device__ __forceinline__ static bool exists(int i) {
    return (i + 1) * cuda::kWarp <= kAll || own_lane() + i * cuda::kWarp < kAll;
  }
  __device__ __forceinline__ static cuda::SharedAddress place(int i) {
    constexpr int kPadding = kPitch - kVectors * 16;
    const int padding = kPadding == 0 ? 0 : row(i) * kPadding;
    return static_cast<cuda::SharedAddress>((own_lane() + i * 32) * 16 + padding);
  }
  // All rows exist, and all bytes of the span; no vector goes beyond the end of the weight.
  __device__ __forceinline__ void copy_whole(cuda::SharedAddress to, int tile) const {
    const std::uint8_t* const first =
        args_.gemm.weight.data +
        int64_t{tile} * static_cast<int>(args_.gemm.weight.row_stride * Tile::kWeights) +
        int64_t{span_} * Tile::kSpanBytes;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const std::uint8_t* const from = first + offsets_[i];
      const int past = cuda::misalignment<16>(from);
      // Of a row, only the last vector may have none of the bytes.
      const bool needed = vector(i) < kVectors - 1 || (kVectors - 1) * 16 - Tile::kSpanBytes < past;
      if (exists(i) && needed) cuda::copy_async(to + place(i), from - past);
    }
  }
  __device__ __forceinline__ void copy(cuda::SharedAddress to, int tile) const {
    const int bytes = span_ < args_.whole_spans ? Tile::kSpanBytes : args_.last_bytes;
#pragma unroll 1
    for (int i = 0; i < kOwn; ++i) {
      if (!exists(i)) break;
      const std::uint8_t* const from =
          row_of(args_.gemm, tile, row(i)) + int64_t{span_} * Tile::kSpanBytes;
      const int past = cuda::misalignment<16>(from);
      const int at = vector(i) * 16;
      if (at >= past + bytes) continue;
      copy_weight_vector(to + place(i), from - past + at,
                         room_in_weight(from - past + at, args_.weight_end));
    }
  }

  const FewRowsArgs& args_;
  const Share& share_;
  const Part& part_;
  Walk<Tile::kTiles> walk_;
  int left_, tile_, span_;  // items of the run, and the next one
  cuda::SharedAddress ring_;
  int offsets_[kOwn];  // of the lane's vectors, where has_usual_stride
};

}  // namespace planq::linear_gguf
