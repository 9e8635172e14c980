// A ring of stages in shared memory: what one thread has the copy engine (TMA) fill, and warps of
// tensor cores read. A stage holds 128 bytes along k of both operands' rows.
#pragma once

#include <cstdint>

#include "cuda/mbarrier.cuh"
#include "cuda/tensor_map.cuh"
#include "cuda/wgmma.cuh"

namespace planq::linear::sm90 {

inline constexpr int kGroupThreads = 128;  // that multiply together: a warpgroup
inline constexpr int kGroupWarps = kGroupThreads / cuda::kWarp;

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

}  // namespace planq::linear::sm90
