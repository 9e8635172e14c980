// Outliers on sm_90a in the order of Accumulation::TensorSm90, by the tensor cores: sums meet the
// scales of their rows, then outlier columns are added in steps of math/tensor_core.h, 16 places
// each. Codes and values are both numbers of the outliers' type.
#pragma once

#include "cuda/mma.cuh"
#include "cuda/wgmma.cuh"
#include "ops/linear/linear_llm_int8/sm90_list.cuh"
#include "ops/linear/sm90/fragments.cuh"

namespace planq::linear_llm_int8::sm90 {

inline constexpr int kStepPlaces = 16, kSteps = kPlaces / kStepPlaces;

// Places in whole steps, of the list's first kPlaces.
__device__ __forceinline__ int whole_steps(int count) {
  return (min(count, kPlaces) + kStepPlaces - 1) / kStepPlaces * kStepPlaces;
}

// Orders of codes in shared memory. Codes behind the last place are +0, up to place places(count).
//
// WgmmaOrder is the second operand of wgmma: rows of 64 places for each column, with the swizzle of
// 128 bytes. There is one step, or all of them.
struct WgmmaOrder {
  static constexpr bool kOutliersType = true;
  static __device__ __forceinline__ int slot(int place, int column) {
    return column * kPlaces + (place ^ column % 8 * 8);
  }
  static __device__ __forceinline__ int places(int count) {
    return count > kStepPlaces ? kPlaces : whole_steps(count);
  }
};
// MmaOrder is operand a of mma.sync: rows of 128 columns for each place. They are swizzled by
// place, so that ldmatrix, which reads eight columns of eight places, meets no bank twice.
struct MmaOrder {
  static constexpr bool kOutliersType = true;
  static __device__ __forceinline__ int slot(int place, int column) {
    return place * kCodeColumns + (column ^ place % 8 * 8);
  }
  static __device__ __forceinline__ int places(int count) { return whole_steps(count); }
};

// --- Tiles of the tensor cores ------------------------------------------------------------------

// Loads kCount times two neighbouring 16-bit values, from row(i) at place(i), which is even. Places
// beyond the capacity give other values. All loads are started before one is waited for.
template <int kCount, class Row, class Place>
__device__ __forceinline__ void read_twos(std::uint32_t (&words)[kCount],
                                          const OutlierList& outliers, const Row& row,
                                          const Place& place) {
  const int last = outliers.capacity - 1;
  if (outliers.vectors) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      words[i] = *reinterpret_cast<const std::uint32_t*>(row(i) + min(place(i), last - 1));
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      words[i] = row(i)[min(place(i), last)] | std::uint32_t{row(i)[min(place(i) + 1, last)]} << 16;
  }
}
// Two values at an even place and the next, with 0 from place `count` on.
__device__ __forceinline__ std::uint32_t up_to(int count, int place, std::uint32_t values) {
  if (place >= count) return 0;
  return place + 1 == count ? values & 0xFFFF : values;
}

// The values of the rows that a thread has sums of, as the first operand of wgmma: kSteps steps of
// kTiles wgmma tiles.
template <int kTiles>
struct StepValues {
  static constexpr int kCount = kSteps * kTiles * 4;

  std::uint32_t words[kCount];

  // Loads values from place `first` on, for the rows that fragment_row() numbers from m on. Values
  // beyond the last place are undefined until up_to_last().
  __device__ __forceinline__ void read(const OutlierList& outliers, const Outputs& outputs,
                                       int batch, std::int64_t m, int first) {
    const std::uint16_t* rows[2 * kTiles];
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r)
      rows[r] = static_cast<const std::uint16_t*>(outliers.values) + batch * outliers.batch +
                fragment_row(m, r, outputs.rows) * outliers.row;
    read_twos(
        words, outliers, [&](int i) { return rows[i / 4 % kTiles * 2 + i % 2]; },
        [&](int i) { return place(first, i); });
  }
  __device__ __forceinline__ void up_to_last(int first, int count) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) words[i] = up_to(count, place(first, i), words[i]);
  }

 private:
  static __device__ __forceinline__ int place(int first, int i) {
    return first + static_cast<int>(threadIdx.x) % 4 * 2 + i / 4 / kTiles * kStepPlaces +
           i % 4 / 2 * 8;
  }
};

// Adds the first kUsed steps to sums, which are float32 by now. A step of zeros changes nothing in
// a sum that comes from a step.
template <class T, int kUsed, int kTiles>
__device__ __forceinline__ void add_steps(int (&sums)[kTiles][kCodeColumns / 2],
                                          const StepValues<kTiles>& values,
                                          const std::uint16_t* codes) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
  const std::uint64_t operand =
      cuda::descriptor_of(static_cast<std::uint32_t>(cuda::uniform(cuda::shared_address(codes))));
  cuda::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kUsed; ++step)
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const std::uint32_t* held = values.words + 4 * (step * kTiles + tile);
      const std::uint32_t words[4] = {held[0], held[1], held[2], held[3]};
      cuda::wgmma_add_held<T>(sums[tile], words, cuda::advanced(operand, step * cuda::kWgmmaBytes));
    }
  cuda::wgmma_commit();
  cuda::wgmma_wait<0>();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
}

// Adds outliers to the tiles of a group, one tile after another, of kTiles wgmma tiles each.
// `codes`: shared memory of the group, free while it multiplies, aligned to 1024 bytes.
template <int kTiles>
class TileSteps {
 public:
  using Order = WgmmaOrder;

  float scales[2 * kTiles];

  __device__ __forceinline__ TileSteps(const OutlierList& outliers, std::uint16_t* codes,
                                       const TileBarriers& barriers)
      : outliers_(outliers), codes_(codes), barriers_(barriers), count_(outliers.size()) {}

  __device__ __forceinline__ bool has_steps() const { return count_ > 0; }
  // Called before a tile, when the one before it is stored: loads values and scales of the rows.
  // `m`: the warp's first row.
  __device__ __forceinline__ void begin(const Outputs& outputs, int batch, std::int64_t m) {
    cuda::named_barrier_arrive(barriers_.free, kPickThreads);
    if (has_steps()) values_.read(outliers_, outputs, batch, m, 0);
    read_scales<kTiles>(scales, outputs, batch, m);
  }

  // Adds all outlier columns to sums that have the scales of their rows. `m`: the warp's first row.
  // `n`: the tile's first column. Afterwards the shared memory is free.
  __device__ __forceinline__ void add(int (&sums)[kTiles][kCodeColumns / 2], const Outputs& outputs,
                                      int batch, std::int64_t m, std::int64_t n) {
    cuda::named_barrier_wait(barriers_.full, kPickThreads);
#pragma unroll 1
    for (int first = 0; first < count_;) {
      values_.up_to_last(first, count_);
      with_values(outliers_.dtype, [&]<class T>(T) {
        if (cuda::uniform(count_ - first) <= kStepPlaces)
          add_steps<T, 1>(sums, values_, codes_);
        else
          add_steps<T, kSteps>(sums, values_, codes_);
      });
      first += kPlaces;
      if (first >= count_) break;
      values_.read(outliers_, outputs, batch, m, first);
      gather(first, n, outputs.columns);
    }
    wait();
  }

 private:
  static constexpr int kThreads = 128;

  __device__ __forceinline__ void wait() const {
    cuda::named_barrier_wait(barriers_.own, kThreads);
  }

  __device__ __forceinline__ void gather(int first, std::int64_t n, std::int64_t columns) const {
    wait();
    gather_codes<WgmmaOrder>(outliers_, first, min(count_ - first, kPlaces),
                             WgmmaOrder::places(count_ - first), n, columns,
                             static_cast<int>(threadIdx.x) % kThreads, codes_);
    cuda::fence_async_proxy();
    wait();
  }

  const OutlierList& outliers_;
  std::uint16_t* codes_;
  TileBarriers barriers_;
  int count_;
  StepValues<kTiles> values_;
};

// --- Few tokens ---------------------------------------------------------------------------------

// The accumulator of mma.sync for eight rows of SumRows and sixteen columns, from row number `from`
// and column `column` on. Lane l has rows 2 (l % 4) and 2 (l % 4) + 1 at columns l / 4 and l / 4 +
// 8. Rows beyond the last are the last one again.
class RowFragment {
 public:
  float t[4];

  __device__ __forceinline__ RowFragment(const SumRows& rows, int from, int column)
      : left_(rows.count - from - lane() % 4 * 2) {
    // SumRows points to this lane's four columns; those of lane 0 are where the row begins.
    at_ = rows.sums - 4 * lane() + (rows.count - max(left_, 1)) * rows.pitch + column + lane() / 4;
    pitch_ = left_ > 1 ? rows.pitch : 0;
  }
  // Loads sums. If they are still integers, they become float32 and meet the scales of their rows.
  __device__ __forceinline__ void load(bool integers, const float (&scales)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int held = *place(i);
      t[i] = integers ? static_cast<float>(held) * scales[i % 2] : __int_as_float(held);
    }
  }
  __device__ __forceinline__ void store() const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i % 2 < left_) *place(i) = __float_as_int(t[i]);
  }

 private:
  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % cuda::kWarp;
  }
  __device__ __forceinline__ int* place(int i) const { return at_ + i % 2 * pitch_ + i / 2 * 8; }

  int left_, pitch_;  // left_: rows from the lane's first on
  int* at_;
};

// Like ShareOutliers, in steps of mma.sync.
class ShareSteps {
 public:
  using Order = MmaOrder;

  __device__ __forceinline__ ShareSteps(const OutlierList& outliers, std::uint16_t* codes,
                                        const SharePlace& place, float*)
      : outliers_(outliers), codes_(codes), place_(place), held_(*outliers.count) {}

  __device__ __forceinline__ void ask(const SumRows& rows) {
    if (rows.count > 0 && outliers_.capacity > 0) read(rows, 0, 0);
  }
  __device__ __forceinline__ void add(const SumRows& rows, float scales, std::int64_t columns) {
    const int count = outlier_count(held_, outliers_.capacity);
    int first = 0;
    do {
      const int held = min(count - first, kPlaces);
      if (first > 0) gather_share<MmaOrder>(outliers_, first, held, place_.n, columns, codes_);
      with_values(outliers_.dtype, [&]<class T>(T) { add_steps<T>(rows, scales, first, held); });
      first += kPlaces;
    } while (first < count);
    __syncwarp();
  }

 private:
  static constexpr int kRows = 8;  // of a step

  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % cuda::kWarp;
  }
  // Loads the values of eight rows from number `from` on, at places from `first` on.
  __device__ __forceinline__ void read(const SumRows& rows, int from, int first) {
    const std::int64_t row = rows.m + min(from + lane() / 4, rows.count - 1) * rows.step;
    const std::uint16_t* values = static_cast<const std::uint16_t*>(outliers_.values) +
                                  place_.batch * outliers_.batch + row * outliers_.row;
    read_twos(
        words_, outliers_, [&](int) { return values; },
        [&](int i) { return first + own_place(i); });
  }
  static __device__ __forceinline__ int own_place(int i) { return 8 * i + lane() % 4 * 2; }

  // Adds `held` places from place `first` on, to eight rows at a time.
  template <class T>
  __device__ __forceinline__ void add_steps(const SumRows& rows, float scales, int first,
                                            int held) {
#pragma unroll 1
    for (int from = 0; from < rows.count; from += kRows) {
      if (first + from > 0) read(rows, from, first);
      std::uint32_t words[kSteps][2];
#pragma unroll
      for (int i = 0; i < 2 * kSteps; ++i)
        words[i / 2][i % 2] = up_to(held, own_place(i), words_[i]);
      const float own[2] = {__shfl_sync(cuda::kAllLanes, scales, from + lane() % 4 * 2),
                            __shfl_sync(cuda::kAllLanes, scales, from + lane() % 4 * 2 + 1)};
#pragma unroll 2
      for (int column = 0; column < kCodeColumns; column += 16) {
        RowFragment sums(rows, from, column);
        sums.load(first == 0, own);
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          if (step * kStepPlaces < held) add_step<T>(sums, words[step], step, column);
        __syncwarp();  // a row beyond the last one is a second read of the last one
        sums.store();
      }
    }
  }
  // Codes are operand a of mma.sync: its rows are columns of the output.
  template <class T>
  __device__ __forceinline__ void add_step(RowFragment& sums, const std::uint32_t (&values)[2],
                                           int step, int column) const {
    const int place = step * kStepPlaces + lane() % 8 + lane() / 16 * 8;
    std::uint32_t codes[4];
    cuda::load_transposed_matrices(
        codes, cuda::shared_address(codes_ + MmaOrder::slot(place, column + lane() / 8 % 2 * 8)));
    cuda::multiply_add_floats<T>(sums.t, codes, values[0], values[1]);
  }

  const OutlierList& outliers_;
  std::uint16_t* codes_;
  SharePlace place_;
  std::int64_t held_;
  std::uint32_t words_[2 * kSteps];
};

}  // namespace planq::linear_llm_int8::sm90
