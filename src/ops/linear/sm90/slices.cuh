// The main loop of the floating kernels. It has the order of Accumulation::TensorSm90: each slice
// of 128 terms is a chain of wgmma from +0 in registers of its own. A slice is added to the total
// while the next one is multiplied.
#pragma once

#include "math/tensor_core.h"
#include "ops/linear/sm90/args.cuh"
#include "ops/linear/sm90/ring.cuh"

namespace planq::linear::sm90 {

// What scales a gemm has: none, those of rows and columns, which multiply the totals, or those of
// blocks, which multiply slices.
enum class Scales { None, OfRowsAndColumns, OfBlocks };

// A thread's sums of a wgmma tile: 64 rows of the first operand by kColumns rows of the second.
template <int kColumns>
using Slice = float[kColumns / 2];

// Adds slices that have no scales to the total. Own: what a slice would need for that.
struct PlainSlices {
  struct Own {};
  __device__ __forceinline__ Own of(int) const { return {}; }
  template <int kSums>
  __device__ __forceinline__ void add(float (&total)[kSums], const float (&slice)[kSums],
                                      Own) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) total[i] = total[i] + slice[i];
  }
};

// The descriptor of an operand in a stage; the bytes from one of its terms to the next; and the
// bytes from the terms of one wgmma to those of the next.
template <class T>
__device__ __forceinline__ std::uint64_t descriptor_of(std::uint32_t shared) {
  return cuda::kTransposed<T> ? cuda::transposed_descriptor_of(shared)
                              : cuda::descriptor_of(shared);
}
template <class T>
inline constexpr int kTermBytes =
    cuda::kTransposed<T> ? cuda::kBoxBytes : static_cast<int>(sizeof(T));
template <class T>
inline constexpr int kStepBytes = cuda::kWgmmaBytes / static_cast<int>(sizeof(T)) * kTermBytes<T>;

// Multiplies the slices of a ring's stages, one after another.
template <class A, class B, class Ring>
class RingSlices {
 public:
  // k blocks, and so stages, of a slice.
  static constexpr int kKBlocks = math::kTensorCoreSlice * sizeof(A) / cuda::kBoxBytes;
  static_assert(sizeof(A) == sizeof(B));
  // The offsets of a slice's stages, in bytes from the first stage of the ring.
  struct Stages {
    int at[kKBlocks];
  };

  // `row`: the first row of the first operand, a multiple of 64.
  __device__ __forceinline__ RingSlices(const Ring& ring, int row)
      : ring_(ring),
        first_(descriptor_of<A>(cuda::shared_address(ring.first(0)) + row * cuda::kBoxBytes)),
        second_(descriptor_of<B>(cuda::shared_address(ring.second(0)))),
        cursor_(ring.cursor()),
        oldest_(ring.cursor()) {}

  // Waits for the stages of the next slice.
  __device__ __forceinline__ Stages next() {
    Stages stages;
#pragma unroll
    for (int k_block = 0; k_block < kKBlocks; ++k_block) {
      ring_.full[cursor_.stage].wait(cursor_.parity);
      stages.at[k_block] = cursor_.stage * Ring::kStageBytes;
      cursor_.advance();
    }
    return stages;
  }
  // Issues the wgmma of a slice for 64 rows, wgmma tile `tile` from the first row on. 64 rows take
  // the same bytes whether they are transposed or not.
  template <int kSums>
  __device__ __forceinline__ void begin(float (&sums)[kSums], const Stages& stages,
                                        int tile = 0) const {
    const int row = tile * cuda::kWgmmaRows * cuda::kBoxBytes;
    cuda::wgmma_fence();
#pragma unroll
    for (int k_block = 0; k_block < kKBlocks; ++k_block)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int first = stages.at[k_block] + step * kStepBytes<A> + row;
        const int second = stages.at[k_block] + step * kStepBytes<B>;
        cuda::wgmma_add_floats<A, B>(sums, cuda::advanced(first_, first),
                                     cuda::advanced(second_, second), k_block > 0 || step > 0);
      }
    cuda::wgmma_commit();
  }
  // Releases the stages of the oldest slice that has not been released.
  __device__ __forceinline__ void release() {
#pragma unroll
    for (int k_block = 0; k_block < kKBlocks; ++k_block) {
      ring_.release(oldest_.stage);
      oldest_.advance();
    }
  }

 private:
  static constexpr int kSteps = cuda::kBoxBytes / cuda::kWgmmaBytes;  // of a k block

  const Ring& ring_;
  std::uint64_t first_, second_;
  typename Ring::Cursor cursor_, oldest_;
};

// The total of 64 rows by kColumns, over the stages of a ring. Two slices are in registers: one is
// multiplied while the other is added to the total.
template <class A, class B, class Ring, int kColumns>
class SliceSums : private RingSlices<A, B, Ring> {
 public:
  using Slices = RingSlices<A, B, Ring>;
  using Sums = Slice<kColumns>;

  using Slices::Slices;

  // `slices`: at least 1. Join: adds slices to the total, like PlainSlices.
  template <class Join>
  __device__ __forceinline__ void sum(Sums& total, int slices, const Join& join) {
    Held<Join> held[2];
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) total[i] = 0;
    multiply(held[0], join, 0);
    int slice = 1;
#pragma unroll 1
    for (; slice + 1 < slices; slice += 2) {
      multiply_next(total, held[0], held[1], join, slice);
      multiply_next(total, held[1], held[0], join, slice + 1);
    }
    if (slice < slices) {
      multiply_next(total, held[0], held[1], join, slice);
      finish<Join>(total, held[1], join);
    } else {
      finish<Join>(total, held[0], join);
    }
  }

 private:
  template <class Join>
  struct Held {
    Sums sums;
    typename Join::Own own;
  };

  // Waits for the stages of a slice and issues its wgmma.
  template <class Join>
  __device__ __forceinline__ void multiply(Held<Join>& held, const Join& join, int slice) {
    held.own = join.of(slice);
    this->begin(held.sums, this->next());
  }
  // Issues the next slice, and adds the one before it to the total.
  template <class Join>
  __device__ __forceinline__ void multiply_next(Sums& total, Held<Join>& done, Held<Join>& next,
                                                const Join& join, int slice) {
    multiply(next, join, slice);
    cuda::wgmma_wait<1>();
    cuda::pin(done.sums);
    join.add(total, done.sums, done.own);
    this->release();
  }
  template <class Join>
  __device__ __forceinline__ void finish(Sums& total, Held<Join>& last, const Join& join) {
    cuda::wgmma_wait<0>();
    cuda::pin(last.sums);
    join.add(total, last.sums, last.own);
    this->release();
  }
};

// The total of kTiles x 64 rows. Registers hold only one slice of 64 rows beside it, so a slice is
// complete before it is added, and nothing of this group is multiplied meanwhile; the other group's
// wgmma fills the tensor cores.
template <class A, class B, class Ring, int kColumns, int kTiles>
class TallSliceSums : private RingSlices<A, B, Ring> {
 public:
  using Slices = RingSlices<A, B, Ring>;

  using Slices::Slices;

  template <class Join>
  __device__ __forceinline__ void sum(Slice<kColumns> (&total)[kTiles], int slices,
                                      const Join& join) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) total[tile][i] = 0;
    Slice<kColumns> sums;
#pragma unroll 1
    for (int slice = 0; slice < slices; ++slice) {
      const typename Slices::Stages stages = this->next();
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        cuda::pin(sums);
        this->begin(sums, stages, tile);
        cuda::wgmma_wait<0>();
        cuda::pin(sums);
        if (tile + 1 == kTiles) this->release();
        join.add(total[tile], sums, join.of(slice));
      }
    }
  }
};

template <Scales kScales>
__device__ __forceinline__ void touch_columns(const Epilogue& e, std::int64_t n) {
  touch_element(e.bias, n, e.bias_dtype);
  if constexpr (kScales == Scales::OfRowsAndColumns)
    touch_element(e.weight_scale, n * e.weight_step, e.scale_dtype);
}

// What the sums are when they go to the epilogue.
template <Scales kScales>
inline constexpr SumsAre kSumsAre =
    kScales == Scales::OfRowsAndColumns ? SumsAre::Scaled : SumsAre::Unscaled;

}  // namespace planq::linear::sm90
