// Outliers on sm_90a in the order of Accumulation::Sequential: sums meet the scales of their rows,
// then an fma for each outlier column is added, one after another.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/mma.cuh"
#include "ops/linear/linear_llm_int8/sm90_list.cuh"
#include "ops/linear/sm90/fragments.cuh"

namespace planq::linear_llm_int8::sm90 {

// The codes of a thread's columns at one place.
struct PlaceCodes {
  static constexpr int kEights = kCodeColumns / 4 / 8;

  uint4 eight[kEights];

  __device__ __forceinline__ void read(const std::uint16_t* codes) {
    const auto* from = reinterpret_cast<const uint4*>(codes + threadIdx.x % 4 * (kCodeColumns / 4));
#pragma unroll
    for (int i = 0; i < kEights; ++i) eight[i] = from[i];
  }
};

// Adds one place to the sums of a thread, which are those of kTiles wgmma tiles. Sums are float32
// by now, in registers of integers. Eight codes at a time are replaced by those of the next place,
// so that these loads are under way long before they are needed.
template <int kTiles>
__device__ __forceinline__ void add_place(int (&sums)[kTiles][kCodeColumns / 2], PlaceCodes& codes,
                                          const std::uint16_t* next,
                                          const float (&values)[2 * kTiles]) {
  const auto* from = reinterpret_cast<const uint4*>(next + threadIdx.x % 4 * (kCodeColumns / 4));
#pragma unroll
  for (int eight = 0; eight < PlaceCodes::kEights; ++eight) {
    const uint4 held = codes.eight[eight];
    codes.eight[eight] = from[eight];
    const std::uint32_t pairs[4] = {held.x, held.y, held.z, held.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float code[2];
      widen_pair(pairs[j], code);
#pragma unroll
      for (int r = 0; r < 2 * kTiles; ++r) {
        int* own = sums[r / 2] + 4 * (4 * eight + j) + 2 * (r % 2);
#pragma unroll
        for (int i = 0; i < 2; ++i)
          own[i] = __float_as_int(math::fused(values[r], code[i], __int_as_float(own[i])));
      }
    }
  }
}

// Value number i of a sequence that lies in these words.
template <class T>
__device__ __forceinline__ float value_of(const std::uint32_t* words, int i) {
  if constexpr (sizeof(T) == 4)
    return __uint_as_float(words[i]);
  else
    return cuda::of_pair<T>(words[i / 2], i % 2);
}

// Values of kRows rows at two neighbouring places.
template <class T, int kRows>
struct PlacePair {
  static constexpr int kWords = sizeof(T) / 2;

  std::uint32_t words[kRows][kWords];

  __device__ __forceinline__ void widen(float (&values)[2][kRows]) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) values[i][r] = value_of<T>(words[r], i);
  }
};

// The values of the rows that a thread has sums of. Four neighbouring lanes have the same rows: of
// every 16 places each lane loads four, and passes them to the others by shuffles.
template <class T, int kRows>
class RowValues {
 public:
  static constexpr int kRead = 16;  // places that four lanes load

  const T* at[kRows];

  // Loads places `first` to first + 15. Those beyond the last are other places again.
  __device__ __forceinline__ void read(int first, int count, bool vectors) {
    const int own = first + static_cast<int>(threadIdx.x) % 4 * 4;
    const int from = own < count ? own : 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (vectors) {
        held_[r] = *reinterpret_cast<const Four*>(at[r] + from);
      } else {
        T each[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) each[i] = at[r][min(from + i, count - 1)];
        memcpy(&held_[r], each, sizeof each);
      }
    }
  }
  // The values at place `place`, which is even, and at the next. Both were loaded by read().
  __device__ __forceinline__ PlacePair<T, kRows> pair(int place) const {
    PlacePair<T, kRows> pair;
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp / 4 * 4 + place % kRead / 4;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      std::uint32_t words[2 * pair.kWords];
      memcpy(words, &held_[r], sizeof words);
#pragma unroll
      for (int i = 0; i < pair.kWords; ++i)
        pair.words[r][i] =
            __shfl_sync(cuda::kAllLanes, place % 4 == 0 ? words[i] : words[pair.kWords + i], lane);
    }
    return pair;
  }

 private:
  using Four = cuda::VectorOf<T, 4>;
  Four held_[kRows];
};

// Adds `count` places in their order. `values` has loaded the first 16. Each iteration asks for
// what later ones need from memory and from other lanes. It has only two places, since these are
// hundreds of instructions.
template <class T, int kTiles>
__device__ __forceinline__ void add_places(int (&sums)[kTiles][kCodeColumns / 2],
                                           const std::uint16_t* codes,
                                           RowValues<T, 2 * kTiles>& values, int first, int count,
                                           bool vectors) {
  constexpr int kRead = RowValues<T, 2 * kTiles>::kRead;
  PlaceCodes held;
  held.read(codes);
  PlacePair<T, 2 * kTiles> next = values.pair(0);
#pragma unroll 1
  for (int place = 0; place < count; place += 2, codes += 2 * kCodeColumns) {
    float two[2][2 * kTiles];
    next.widen(two);
    next = values.pair(place + 2);
    if (place % kRead == kRead - 4) values.read(first + place + 4, first + count, vectors);
    const bool both = place + 1 < count;
    add_place<kTiles>(sums, held, codes + (both ? kCodeColumns : 0), two[0]);
    if (both)
      add_place<kTiles>(sums, held, codes + (place + 2 < count ? 2 : 1) * kCodeColumns, two[1]);
  }
}

// Adds outliers to the tiles of a group, one tile after another, of kTiles wgmma tiles each.
// `codes`: shared memory of the group, free while it multiplies.
template <int kTiles>
class TileOutliers {
 public:
  using Order = FragmentOrder;

  float scales[2 * kTiles];

  __device__ __forceinline__ TileOutliers(const OutlierList& outliers, std::uint16_t* codes,
                                          const TileBarriers& barriers)
      : outliers_(outliers), codes_(codes), barriers_(barriers), count_(outliers.size()) {}

  // Whether it uses the tensor cores.
  __device__ __forceinline__ bool has_steps() const { return false; }
  // Called before a tile, when the one before it is stored: prefetches values, and loads scales, of
  // the rows. `m`: the warp's first row.
  __device__ __forceinline__ void begin(const Outputs& outputs, int batch, std::int64_t m) {
    cuda::named_barrier_arrive(barriers_.free, kPickThreads);
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    touch_values(outliers_, count_, outputs, batch, m + lane % 16 + lane / 16 * cuda::kWgmmaRows);
    read_scales<kTiles>(scales, outputs, batch, m);
  }

  // Adds all outlier columns to sums that have the scales of their rows. `m`: the warp's first row.
  // `n`: the tile's first column. Afterwards the shared memory is free.
  __device__ __forceinline__ void add(int (&sums)[kTiles][kCodeColumns / 2], const Outputs& outputs,
                                      int batch, std::int64_t m, std::int64_t n) const {
    switch (outliers_.dtype) {
      case DType::Float16:
        add_all<math::Half>(sums, outputs, batch, m, n);
        break;
      case DType::BFloat16:
        add_all<math::Bfloat16>(sums, outputs, batch, m, n);
        break;
      default:
        add_all<float>(sums, outputs, batch, m, n);
    }
    wait();
  }

 private:
  static constexpr int kThreads = 128;

  __device__ __forceinline__ void wait() const {
    cuda::named_barrier_wait(barriers_.own, kThreads);
  }

  template <class T>
  __device__ __forceinline__ void add_all(int (&sums)[kTiles][kCodeColumns / 2],
                                          const Outputs& outputs, int batch, std::int64_t m,
                                          std::int64_t n) const {
    RowValues<T, 2 * kTiles> values;
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r)
      values.at[r] = static_cast<const T*>(outliers_.values) + batch * outliers_.batch +
                     fragment_row(m, r, outputs.rows) * outliers_.row;
    if (count_ > 0) values.read(0, count_, outliers_.vectors);
    cuda::named_barrier_wait(barriers_.full, kPickThreads);
#pragma unroll 1
    for (int first = 0; first < count_; first += kPlaces) {
      if (first > 0) {
        wait();
        gather(first, n, outputs.columns);
        wait();
        values.read(first, count_, outliers_.vectors);
      }
      add_places<T, kTiles>(sums, codes_, values, first, min(count_ - first, kPlaces),
                            outliers_.vectors);
    }
  }

  __device__ __forceinline__ void gather(int first, std::int64_t n, std::int64_t columns) const {
    gather_codes<FragmentOrder>(outliers_, first, min(count_ - first, kPlaces), kPlaces, n, columns,
                                static_cast<int>(threadIdx.x) % kThreads, codes_);
  }

  const OutlierList& outliers_;
  std::uint16_t* codes_;
  TileBarriers barriers_;
  int count_;
};

// --- Few tokens ---------------------------------------------------------------------------------

template <int kRows>
struct RowSums {
  float t[kRows][4];

  // Loads sums. If they are still integers, they become float32 and meet the scales of their rows.
  __device__ __forceinline__ void load(const SumRows& rows, int from, bool integers, float scales) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int number = min(from + r, rows.count - 1);
      const auto four = *reinterpret_cast<const int4*>(rows.sums + number * rows.pitch);
      const float scale = __shfl_sync(cuda::kAllLanes, scales, number);
      const int each[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        t[r][i] = integers ? static_cast<float>(each[i]) * scale : __int_as_float(each[i]);
    }
  }
  __device__ __forceinline__ void store(const SumRows& rows, int from) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (from + r < rows.count)
        *reinterpret_cast<float4*>(rows.sums + (from + r) * rows.pitch) =
            make_float4(t[r][0], t[r][1], t[r][2], t[r][3]);
  }
  // Adds kCount places. `values`: their values, row by row. `codes`: the lane's four codes at each
  // place.
  template <int kCount, class T>
  __device__ __forceinline__ void add(const T* values, const std::uint16_t* codes) {
    using Held = std::conditional_t<kCount == 4, cuda::VectorOf<T, 4>, T>;
    float value[kRows][kCount];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const auto held = *reinterpret_cast<const Held*>(values + r * kPlaces);
      std::uint32_t words[(sizeof held + 3) / 4] = {};
      memcpy(words, &held, sizeof held);
#pragma unroll
      for (int i = 0; i < kCount; ++i) value[r][i] = value_of<T>(words, i);
    }
#pragma unroll
    for (int place = 0; place < kCount; ++place) {
      const auto held = *reinterpret_cast<const uint2*>(codes + place * kCodeColumns);
      float code[2][2];
      widen_pair(held.x, code[0]);
      widen_pair(held.y, code[1]);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          t[r][i] = math::fused(value[r][place], code[i / 2][i % 2], t[r][i]);
    }
  }
};

// Copies values, as they are, to the warp's shared memory: kStagedRows rows from row number `from`
// on, at kPlaces places from place `first` on. There are none beyond the capacity. The copies are
// complete after cuda::wait_for_copies().
template <class T>
__device__ __forceinline__ void copy_values(const OutlierList& outliers, const SumRows& rows,
                                            int from, int batch, int first, T* staged) {
  constexpr int kAcross = kPlaces / 4, kDown = cuda::kWarp / kAcross;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp, place = lane % kAcross * 4;
  const int count = min(rows.count - from, kStagedRows), left = outliers.capacity - first - place;
  const T* values = static_cast<const T*>(outliers.values) + batch * outliers.batch + first + place;
#pragma unroll 1
  for (int r = lane / kAcross; r < count; r += kDown) {
    const T* row = values + (rows.m + (from + r) * rows.step) * outliers.row;
    T* to = staged + r * kPlaces + place;
    if (!outliers.vectors) {
      for (int i = 0; i < min(left, 4); ++i) to[i] = row[i];
    } else if (left > 0) {
      cuda::copy_async<4 * sizeof(T)>(cuda::shared_address(to), row);
    }
  }
}

// Adds outliers to a warp's rows in few-rows kernels: a block has one tile. Other warps bring the
// codes, from all blocks of the cluster.
class ShareOutliers {
 public:
  using Order = ColumnOrder;

  // `staged`: shared memory of the warp, aligned to 16 bytes.
  __device__ __forceinline__ ShareOutliers(const OutlierList& outliers, std::uint16_t* codes,
                                           const SharePlace& place, float* staged)
      : outliers_(outliers),
        codes_(codes),
        place_(place),
        staged_(staged),
        held_(*outliers.count) {}

  // Begins to load values, before they are needed.
  __device__ __forceinline__ void ask(const SumRows& rows) const {
    with_any_values(outliers_.dtype, [&]<class T>(T) { copy<T>(rows, 0, 0); });
  }
  // Adds all outlier columns to the rows. All 128 threads call it when the codes of the first
  // places are complete.
  __device__ __forceinline__ void add(const SumRows& rows, float scales,
                                      std::int64_t columns) const {
    with_any_values(outliers_.dtype, [&]<class T>(T) { add_all<T>(rows, scales, columns); });
  }

 private:
  template <class T>
  __device__ __forceinline__ T* staged() const {
    return reinterpret_cast<T*>(staged_);
  }
  template <class T>
  __device__ __forceinline__ void copy(const SumRows& rows, int from, int first) const {
    copy_values(outliers_, rows, from, place_.batch, first, staged<T>());
  }

  template <class T>
  __device__ __forceinline__ void add_all(const SumRows& rows, float scales,
                                          std::int64_t columns) const {
    const int count = outlier_count(held_, outliers_.capacity);
    int first = 0;
    do {
      const int held = min(count - first, kPlaces);
      if (first > 0) gather_share<ColumnOrder>(outliers_, first, held, place_.n, columns, codes_);
      if (rows.count > 2)
        add_held<T, kStagedRows>(rows, scales, first, held);
      else if (rows.count > 1)
        add_held<T, 2>(rows, scales, first, held);
      else if (rows.count > 0)
        add_held<T, 1>(rows, scales, first, held);
      first += kPlaces;
    } while (first < count);
  }

  template <class T, int kRows>
  __device__ __forceinline__ void add_held(const SumRows& rows, float scales, int first,
                                           int held) const {
    const std::uint16_t* codes = codes_ + 4 * (threadIdx.x % cuda::kWarp);
#pragma unroll 1
    for (int from = 0; from < rows.count; from += kRows) {
      if (first + from > 0) {
        __syncwarp();  // every lane has read the values before
        copy<T>(rows, from, first);
      }
      cuda::wait_for_copies();
      __syncwarp();
      RowSums<kRows> sums;
      sums.load(rows, from, first == 0, scales);
      // With few rows, loads from shared memory take longest, so more places are under way at a
      // time.
      constexpr int kTimes = kRows > 2 ? 1 : 2;
      int place = 0;
#pragma unroll kTimes
      for (; place + 4 <= held; place += 4)
        sums.template add<4>(staged<T>() + place, codes + place * kCodeColumns);
#pragma unroll 1
      for (; place < held; ++place)
        sums.template add<1>(staged<T>() + place, codes + place * kCodeColumns);
      sums.store(rows, from);
    }
  }

  const OutlierList& outliers_;
  std::uint16_t* codes_;
  SharePlace place_;
  float* staged_;
  std::int64_t held_;
};

}  // namespace planq::linear_llm_int8::sm90
