// The ring of stages in shared memory: one thread has TMA fill them, and warps that multiply read
// them with wgmma. A stage is one k block: 128 bytes along k of the rows of both operands.
#pragma once

#include <cstdint>

#include "cuda/mbarrier.cuh"
#include "cuda/tensor_map.cuh"
#include "cuda/wgmma.cuh"

namespace planq::linear::sm90 {

inline constexpr int kGroupThreads = 128;  // a warpgroup: the warps that issue wgmma together
inline constexpr int kGroupWarps = kGroupThreads / cuda::kWarp;

// kFirst, kSecond: rows of the two operands in a stage.
template <int kFirst, int kSecond, int kStages>
struct Ring {
  static constexpr int kCount = kStages;
  static constexpr int kFirstBytes = kFirst * cuda::kBoxBytes;
  static constexpr int kStageBytes = kFirstBytes + kSecond * cuda::kBoxBytes;
  static constexpr int kBytes = kStages * kStageBytes;
  using Cursor = cuda::StageCursor<kStages>;
  std::uint8_t* stages;  // aligned to 1024 bytes, for the swizzle
  cuda::Barrier* full;
  cuda::Barrier* empty;

  __device__ __forceinline__ std::uint8_t* first(int stage) const {
    return stages + stage * kStageBytes;
  }
  __device__ __forceinline__ std::uint8_t* second(int stage) const {
    return first(stage) + kFirstBytes;
  }
  // Called by one thread. `releases`: how many warps release a stage before it is free.
  __device__ __forceinline__ void open(int releases) const {
    for (int i = 0; i < kStages; ++i) {
      full[i].init(1);
      empty[i].init(releases);
    }
    cuda::publish_barriers();
  }
  __device__ __forceinline__ Cursor cursor() const { return {}; }
  // Called by every warp that has read a stage.
  __device__ __forceinline__ void release(int stage) const {
    if (threadIdx.x % cuda::kWarp == 0) empty[stage].arrive();
  }
};

// Copies k block `k_block` of kRows rows of an operand, from row `row` on. A transposed operand
// takes several TMA boxes, as cuda::transposed_descriptor_of() describes them.
template <int kRows, class T>
__device__ __forceinline__ void copy_rows(std::uint8_t* to, const cuda::TensorMap& map, int k_block,
                                          int row, int batch, const cuda::Barrier& full) {
  if constexpr (cuda::kTransposed<T>) {
    constexpr int kBoxRows = cuda::kBoxBytes / static_cast<int>(sizeof(T));
#pragma unroll
    for (int more = 0; more < kRows; more += kBoxRows)
      cuda::copy_box(to + more * cuda::kBoxBytes, map, (row + more) * static_cast<int>(sizeof(T)),
                     k_block * cuda::kTransposedTerms, batch, full);
  } else {
    cuda::copy_box(to, map, k_block * cuda::kBoxBytes, row, batch, full);
  }
}

}  // namespace planq::linear::sm90
