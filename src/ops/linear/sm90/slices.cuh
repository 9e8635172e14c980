// Slices of 128 terms on the tensor cores of sm_90a, as Accumulation::TensorSm90 names them: each a
// chain of steps from +0 in registers of its own, so that one is added to the sum while the next is
// multiplied.
#pragma once

#include "math/tensor_core.h"
#include "ops/linear/sm90/args.cuh"
#include "ops/linear/sm90/ring.cuh"

namespace planq::linear::sm90 {

// What a product's sums or slices meet on their way to the outputs.
enum class Scales { None, OfRowsAndColumns, OfBlocks };

// A thread's sums of 64 rows of the first factor by kColumns of the second.
template <int kColumns>
using Slice = float[kColumns / 2];

// How slices meet the sum where they have no scales.
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

// A factor whose first box is at `shared`, and the bytes from a term to the next and from a step's
// terms to the next one's.
template <class T>
__device__ __forceinline__ std::uint64_t factor_of(std::uint32_t shared) {
  return cuda::kTransposed<T> ? cuda::transposed_factor_of(shared) : cuda::factor_of(shared);
}
template <class T>
inline constexpr int kTermBytes =
    cuda::kTransposed<T> ? cuda::kBoxBytes : static_cast<int>(sizeof(T));
template <class T>
inline constexpr int kStepBytes = cuda::kProductDepth / static_cast<int>(sizeof(T)) * kTermBytes<T>;

// The slices of a ring's stages, one after another.
template <class A, class B, class Ring>
class RingSlices {
 public:
  // Boxes along k that a slice has.
  static constexpr int kBoxes = math::kTensorCoreSlice * sizeof(A) / cuda::kBoxBytes;
  static_assert(sizeof(A) == sizeof(B));
  // Where they are, in bytes from the first stage on.
  struct Boxes {
    int at[kBoxes];
  };

  // `row`: of the first factor, a multiple of 64.
  __device__ __forceinline__ RingSlices(const Ring& ring, int row)
      : ring_(ring),
        first_(factor_of<A>(cuda::shared_address(ring.first(0)) + row * cuda::kBoxBytes)),
        second_(factor_of<B>(cuda::shared_address(ring.second(0)))),
        cursor_(ring.cursor()),
        oldest_(ring.cursor()) {}

  // The next slice, once its boxes are there.
  __device__ __forceinline__ Boxes next() {
    Boxes boxes;
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      ring_.full[cursor_.stage].wait(cursor_.parity);
      boxes.at[box] = cursor_.stage * Ring::kStageBytes;
      cursor_.advance();
    }
    return boxes;
  }
  // Begins a slice's products of 64 rows, `tile` times 64 from the first on: that many rows are as
  // many bytes, whichever way they lie.
  template <int kSums>
  __device__ __forceinline__ void begin(float (&sums)[kSums], const Boxes& boxes,
                                        int tile = 0) const {
    const int row = tile * cuda::kProductRows * cuda::kBoxBytes;
    cuda::begin_products();
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int first = boxes.at[box] + step * kStepBytes<A> + row;
        const int second = boxes.at[box] + step * kStepBytes<B>;
        cuda::add_step<A, B>(sums, cuda::advanced(first_, first), cuda::advanced(second_, second),
                             box > 0 || step > 0);
      }
    cuda::commit_products();
  }
  // Gives back the oldest stages that are still held: those of a slice.
  __device__ __forceinline__ void release() {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      ring_.release(oldest_.stage);
      oldest_.advance();
    }
  }

 private:
  static constexpr int kSteps = cuda::kBoxBytes / cuda::kProductDepth;  // of a box

  const Ring& ring_;
  std::uint64_t first_, second_;
  typename Ring::Cursor cursor_, oldest_;
};

// The sums of 64 rows by kColumns over the stages of a ring, one product after another.
template <class A, class B, class Ring, int kColumns>
class SliceSums : private RingSlices<A, B, Ring> {
 public:
  using Slices = RingSlices<A, B, Ring>;
  using Sums = Slice<kColumns>;

  using Slices::Slices;

  // `slices`: at least 1.
  template <class Join>
  __device__ __forceinline__ void sum(Sums& total, int slices, const Join& join) {
    Held<Join> held[2];
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) total[i] = 0;
    multiply(held[0], join, 0);
    int slice = 1;
#pragma unroll 1
    for (; slice + 1 < slices; slice += 2) {
      staging(total, held[0], held[1], join, slice);
      staging(total, held[1], held[0], join, slice + 1);
    }
    if (slice < slices) {
      staging(total, held[0], held[1], join, slice);
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

  // Begins the products of a slice, once its boxes are there.
  template <class Join>
  __device__ __forceinline__ void multiply(Held<Join>& held, const Join& join, int slice) {
    held.own = join.of(slice);
    this->begin(held.sums, this->next());
  }
  // Begins the next slice and adds the one before it.
  template <class Join>
  __device__ __forceinline__ void staging(Sums& total, Held<Join>& done, Held<Join>& next,
                                          const Join& join, int slice) {
    multiply(next, join, slice);
    cuda::wait_for_products<1>();
    cuda::pin(done.sums);
    join.add(total, done.sums, done.own);
    this->release();
  }
  template <class Join>
  __device__ __forceinline__ void finish(Sums& total, Held<Join>& last, const Join& join) {
    cuda::wait_for_products<0>();
    cuda::pin(last.sums);
    join.add(total, last.sums, last.own);
    this->release();
  }
};

// The same of kTiles x 64 rows, whose sums leave registers for one slice of 64 rows: it is added
// once it is complete, while other groups multiply.
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
      const typename Slices::Boxes boxes = this->next();
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        cuda::pin(sums);
        this->begin(sums, boxes, tile);
        cuda::wait_for_products<0>();
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

// What the sums are when they leave the registers.
template <Scales kScales>
inline constexpr SumsAre kSumsAre =
    kScales == Scales::OfRowsAndColumns ? SumsAre::Scaled : SumsAre::Products;

}  // namespace planq::linear::sm90
