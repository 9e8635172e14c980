// Outliers in the kernels of wgmma.cuh: listed columns of the input whose values are added to a
// tile's sums. The weight's codes at the first of these columns are picked from the boxes as they
// pass through shared memory; of lists longer than kPlaces, the others are gathered.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/mbarrier.cuh"
#include "cuda/tensor_map.cuh"
#include "ops/linear/wgmma_output.cuh"

namespace planq::linear::wgmma {

// What a kernel does about outliers: a listed column is added by an fma of its own, or sixteen by a
// step of the tensor cores (wgmma_chain.cuh), one after another.
enum class Lists { None, Sequential, Tensor };

// What a product with outliers has beside its factors. Strides count elements.
struct Listed {
  const std::int32_t* index;
  const std::int64_t* count;
  const void* values;  // by row and place in the list
  std::int64_t row, batch;
  const std::int8_t* weight;
  std::int64_t weight_row;
  std::int32_t capacity, terms;
  DType dtype;
  bool vectors;  // four neighbouring values are an aligned vector

  __device__ __forceinline__ int listed() const {
    const std::int64_t held = *count < capacity ? *count : capacity;
    return static_cast<int>(held < 0 ? 0 : held);
  }
};

inline constexpr int kPlaces = 64;  // of the list, whose codes are in shared memory at a time
inline constexpr int kListedColumns = 128;
inline constexpr int kCodeBytes = kPlaces * kListedColumns * 2;
// Values of a warp's rows in shared memory at a time, where the rows are few.
inline constexpr int kStagedRows = 8;
inline constexpr int kStagedBytes = kStagedRows * kPlaces * static_cast<int>(sizeof(float));

// Codes in shared memory are bfloat16, which has all of int8: place by place, those of 128 columns
// in the order in which a thread of the tensor cores has them.
struct FragmentOrder {
  static constexpr bool kOutliersType = false;
  static __device__ __forceinline__ int slot(int place, int column) {
    return place * kListedColumns + column % 8 / 2 * 32 + column / 8 * 2 + column % 2;
  }
};
struct ColumnOrder {
  static constexpr bool kOutliersType = false;
  static __device__ __forceinline__ int slot(int place, int column) {
    return place * kListedColumns + column;
  }
};
__device__ __forceinline__ std::uint16_t as_bfloat16(int code) {
  return static_cast<std::uint16_t>(__float_as_uint(static_cast<float>(code)) >> 16);
}
__device__ __forceinline__ std::uint16_t as_half(int code) {
  std::uint16_t bits;
  asm("cvt.rn.f16.s32 %0, %1;" : "=h"(bits) : "r"(code));
  return bits;
}
// Orders for tensor cores have codes in the type of the outliers, of 16 bits like bfloat16.
template <class Order>
__device__ __forceinline__ std::uint16_t code_bits(int code, DType outliers) {
  if constexpr (Order::kOutliersType)
    if (outliers == DType::Float16) return as_half(code);
  return as_bfloat16(code);
}
__device__ __forceinline__ void widen_pair(std::uint32_t pair, float (&values)[2]) {
  values[0] = __uint_as_float(pair << 16);
  values[1] = __uint_as_float(pair & 0xFFFF0000u);
}

// The list's first places, which all lanes of a warp have between them.
class ListedColumns {
 public:
  // The list is read with its count, not after it.
  __device__ __forceinline__ explicit ListedColumns(const Listed& listed) {
    const int lane = threadIdx.x % cuda::kWarp;
    int columns[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      columns[half] = listed.capacity > 0
                          ? listed.index[min(lane + half * cuda::kWarp, listed.capacity - 1)]
                          : -1;
    count_ = listed.listed();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int place = lane + half * cuda::kWarp, column = columns[half];
      const bool exists = column >= 0 && column < listed.terms;
      column_[half] = place < count_ && exists ? column : -1;
    }
  }
  // Of the whole list.
  __device__ __forceinline__ int count() const { return count_; }
  // The column at this lane's place of a half of the list, or -1.
  __device__ __forceinline__ int column(int half) const { return column_[half]; }

 private:
  int column_[2], count_;
};

// The codes of the list's first places for the 128 columns of 128 threads: each has a column.
template <class Order>
class Picker {
 public:
  __device__ __forceinline__ Picker(const ListedColumns& columns, std::uint16_t* codes)
      : codes_(codes + Order::slot(0, column_of_thread())) {
    const int lane = threadIdx.x % cuda::kWarp;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      column_[half] = columns.column(half);
      const bool is_listed = lane + half * cuda::kWarp < columns.count();
      missing_[half] = __ballot_sync(cuda::kAllLanes, is_listed && column_[half] < 0);
    }
  }

  // Of places that name no column the code is 0.
  __device__ __forceinline__ void clear() const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      for (unsigned left = missing_[half]; left; left &= left - 1)
        put(half * cuda::kWarp + __ffs(left) - 1, 0);
  }

  // From box number `box` along k, whose 128 rows are those of the columns. By whole warps.
  __device__ __forceinline__ void pick(int box, const std::uint8_t* rows) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned left = __ballot_sync(cuda::kAllLanes, column_[half] >> kBoxBits == box);
      for (; left; left &= left - 1) {
        const int lane = __ffs(left) - 1;
        const int byte = __shfl_sync(cuda::kAllLanes, column_[half], lane) % cuda::kBoxBytes;
        put(half * cuda::kWarp + lane, static_cast<std::int8_t>(rows[place_of(byte)]));
      }
    }
    // Reads of the box come before the warp gives it back.
    __syncwarp();
  }

 private:
  static constexpr int kBoxBits = 7;
  static_assert(1 << kBoxBits == cuda::kBoxBytes);

  static __device__ __forceinline__ int column_of_thread() {
    return static_cast<int>(threadIdx.x) % kListedColumns;
  }
  // Where a byte of this thread's row lies: the copy's swizzle changes the places of 16 bytes.
  static __device__ __forceinline__ int place_of(int byte) {
    const int row = column_of_thread();
    return row * cuda::kBoxBytes + (byte ^ row % 8 * 16);
  }
  __device__ __forceinline__ void put(int place, int code) const {
    codes_[place * kListedColumns] = as_bfloat16(code);
  }

  std::uint16_t* codes_;
  int column_[2];
  unsigned missing_[2];
};

// Places `first` and on, up to kPlaces, from memory, and codes of 0 behind them up to number
// `places`, a multiple of four. 128 threads, with the 128 columns from `n` on.
template <class Order>
__device__ __forceinline__ void gather_codes(const Listed& listed, int first, int count, int places,
                                             std::int64_t n, std::int64_t columns, int thread,
                                             std::uint16_t* codes) {
  constexpr int kAtOnce = 4;
  const bool inside = n + thread < columns;
  const std::int8_t* row = listed.weight + (inside ? n + thread : 0) * listed.weight_row;
#pragma unroll 1
  for (int place = 0; place < places; place += kAtOnce) {
    std::int8_t held[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int term = place + i < count ? listed.index[first + place + i] : -1;
      held[i] = inside && term >= 0 && term < listed.terms ? row[term] : std::int8_t{0};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      codes[Order::slot(place + i, thread)] = code_bits<Order>(held[i], listed.dtype);
  }
}

// --- Tiles of the tensor cores ------------------------------------------------------------------

// Row number r of those of which a thread has sums in tiles of the tensor cores, whose warp begins
// at row m: two a tile. Rows that do not exist are the last one.
__device__ __forceinline__ std::int64_t fragment_row(std::int64_t m, int r, std::int64_t rows) {
  m += r / 2 * cuda::kProductRows + r % 2 * 8 + static_cast<int>(threadIdx.x) % cuda::kWarp / 4;
  return min(m, rows - 1);
}

// Sums become float32, under their rows' scales, in the registers where they are.
template <int kTiles, int kCount>
__device__ __forceinline__ void scale_rows(int (&sums)[kTiles][kCount], const Outputs& outputs,
                                           int batch, std::int64_t m) {
  const Epilogue& e = outputs.epilogue;
  float scales[2 * kTiles];
  with_float(e.scale_dtype, [&]<class T>(T) {
    const T* from = static_cast<const T*>(e.input_scale) + batch * outputs.scale_batch;
    T held[2 * kTiles];
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r)
      held[r] = from[fragment_row(m, r, outputs.rows) * e.input_scale_row];
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r) scales[r] = static_cast<float>(math::widen(held[r]));
  });
#pragma unroll
  for (int r = 0; r < 2 * kTiles; ++r)
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        int& own = sums[r / 2][4 * j + 2 * (r % 2) + i];
        own = __float_as_int(static_cast<float>(own) * scales[r]);
      }
}

// One place: the products of a thread's rows and its columns, which are those of kTiles times 64
// rows of the tensor cores. Sums are float32 by now, in registers that were declared for int32.
template <int kTiles>
__device__ __forceinline__ void add_place(int (&sums)[kTiles][kListedColumns / 2],
                                          const std::uint16_t* codes,
                                          const float (&values)[2 * kTiles]) {
  const auto* from = reinterpret_cast<const uint4*>(codes + threadIdx.x % 4 * (kListedColumns / 4));
#pragma unroll
  for (int eight = 0; eight < kListedColumns / 4 / 8; ++eight) {
    const uint4 held = from[eight];
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

// Values of the rows of which a thread has sums. Four neighbouring lanes have the same rows: each
// reads four places of sixteen, and hands them to the others.
template <class T, int kRows>
class RowValues {
 public:
  static constexpr int kRead = 16;  // places that four lanes read

  const T* at[kRows];

  // Places `first` to first + 15; those beyond the last are others again.
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
  // Two places of those that were read, from `place` + 2 `pair` on; place is a multiple of 4.
  __device__ __forceinline__ void share(int place, int pair, float (&values)[2][kRows]) const {
    constexpr int kWords = sizeof(T) / 2;  // of two places
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp / 4 * 4 + place / 4;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      std::uint32_t words[2 * kWords], own[kWords];
      memcpy(words, &held_[r], sizeof words);
#pragma unroll
      for (int i = 0; i < kWords; ++i)
        own[i] = __shfl_sync(cuda::kAllLanes, words[pair * kWords + i], lane);
      T each[2];
      memcpy(each, own, sizeof each);
#pragma unroll
      for (int i = 0; i < 2; ++i) values[i][r] = math::widen(each[i]);
    }
  }

 private:
  using Four = cuda::VectorOf<T, 4>;
  Four held_[kRows];
};

// Places in their order. The values of the next sixteen are on their way while these are added.
template <class T, int kTiles>
__device__ __forceinline__ void add_places(int (&sums)[kTiles][kListedColumns / 2],
                                           const std::uint16_t* codes,
                                           RowValues<T, 2 * kTiles>& next, int first, int count,
                                           bool vectors) {
  constexpr int kRead = RowValues<T, 2 * kTiles>::kRead;
  RowValues<T, 2 * kTiles> now = next;
#pragma unroll 1
  for (int place = 0; place < count; place += 4, codes += 4 * kListedColumns) {
    if (place % kRead == 0) {
      now = next;
      next.read(first + place + kRead, first + count, vectors);
    }
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      float values[2][2 * kTiles];
      now.share(place % kRead, pair, values);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (place + 2 * pair + i < count)
          add_place<kTiles>(sums, codes + (2 * pair + i) * kListedColumns, values[i]);
    }
  }
}

// The outliers of the tiles that four warps have after each other. `codes`: shared memory of these
// warps, free while they multiply.
class TileOutliers {
 public:
  __device__ __forceinline__ TileOutliers(const Listed& listed, std::uint16_t* codes, int barrier)
      : listed_(listed),
        codes_(codes),
        barrier_(barrier),
        count_(listed.listed()),
        picker_(ListedColumns(listed), codes) {}

  // Before a tile, once the one before it is stored.
  __device__ __forceinline__ void begin(const Outputs&, int, std::int64_t) const {
    wait();
    picker_.clear();
  }
  __device__ __forceinline__ void pick(int box, const std::uint8_t* rows) const {
    if (count_ > 0) picker_.pick(box, rows);
  }

  // All listed columns onto sums with their rows' scales, of rows m + 64 tile and columns n on; m
  // is the warp's. Afterwards the shared memory is free.
  template <int kTiles>
  __device__ __forceinline__ void add(int (&sums)[kTiles][kListedColumns / 2],
                                      const Outputs& outputs, int batch, std::int64_t m,
                                      std::int64_t n) const {
    switch (listed_.dtype) {
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

  __device__ __forceinline__ void wait() const { cuda::named_barrier_wait(barrier_, kThreads); }

  template <class T, int kTiles>
  __device__ __forceinline__ void add_all(int (&sums)[kTiles][kListedColumns / 2],
                                          const Outputs& outputs, int batch, std::int64_t m,
                                          std::int64_t n) const {
    RowValues<T, 2 * kTiles> values;
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r)
      values.at[r] = static_cast<const T*>(listed_.values) + batch * listed_.batch +
                     fragment_row(m, r, outputs.rows) * listed_.row;
    if (count_ > 0) values.read(0, count_, listed_.vectors);
    wait();
#pragma unroll 1
    for (int first = 0; first < count_; first += kPlaces) {
      if (first > 0) {
        wait();
        gather(first, n, outputs.columns);
        wait();
        values.read(first, count_, listed_.vectors);
      }
      add_places<T, kTiles>(sums, codes_, values, first, min(count_ - first, kPlaces),
                            listed_.vectors);
    }
  }

  __device__ __forceinline__ void gather(int first, std::int64_t n, std::int64_t columns) const {
    gather_codes<FragmentOrder>(listed_, first, min(count_ - first, kPlaces), kPlaces, n, columns,
                                static_cast<int>(threadIdx.x) % kThreads, codes_);
  }

  const Listed& listed_;
  std::uint16_t* codes_;
  int barrier_, count_;
  Picker<FragmentOrder> picker_;
};

// --- Few tokens ---------------------------------------------------------------------------------

// Rows of sums in shared memory that a lane adds outliers to, four columns of each: number i is
// `pitch` sums behind number i - 1, and row m + i * step of the output. Its scale is in lane i.
struct ListedRows {
  int* sums;
  int pitch, count;
  std::int64_t m, step;
};

// kRows of them, from number `from` on; those beyond the last are the last one again.
template <int kRows>
struct RowSums {
  float t[kRows][4];

  // Sums that are int32 become float32, with their rows' scales.
  __device__ __forceinline__ void load(const ListedRows& rows, int from, bool integers,
                                       float scales) {
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
  __device__ __forceinline__ void store(const ListedRows& rows, int from) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (from + r < rows.count)
        *reinterpret_cast<float4*>(rows.sums + (from + r) * rows.pitch) =
            make_float4(t[r][0], t[r][1], t[r][2], t[r][3]);
  }
  // kCount places: their values, row by row, and the lane's four codes of each.
  template <int kCount>
  __device__ __forceinline__ void add(const float* values, const std::uint16_t* codes) {
    using Held = std::conditional_t<kCount == 4, float4, float>;
    static_assert(sizeof(Held) == kCount * sizeof(float));
    float value[kRows][kCount];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const auto held = *reinterpret_cast<const Held*>(values + r * kPlaces);
      memcpy(value[r], &held, sizeof held);
    }
#pragma unroll
    for (int place = 0; place < kCount; ++place) {
      const auto held = *reinterpret_cast<const uint2*>(codes + place * kListedColumns);
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

// The block that has this lane's column of a half of the list in its part of k; this one where
// there is none.
template <class Share>
__device__ __forceinline__ int owner_of(int column, const Share& share, int boxes) {
  if (column < 0) return share.part;
  const int box = column / cuda::kBoxBytes;
  return static_cast<int>((std::int64_t{box + 1} * share.parts + boxes - 1) / boxes) - 1;
}

// The codes, place by place, that other blocks of the cluster have picked: all at once, for it
// takes long. By 128 threads, after a barrier of the cluster.
template <class Share>
__device__ __forceinline__ void collect_codes(const ListedColumns& columns, const Share& share,
                                              int boxes, std::uint16_t* codes) {
  if (share.parts == 1) return;
  constexpr int kAcross = kListedColumns * 2 / 16, kDown = kListedColumns / kAcross;
  constexpr int kEach = kPlaces / kDown;
  const int first = static_cast<int>(threadIdx.x) / kAcross;
  auto* own = reinterpret_cast<uint4*>(codes) + threadIdx.x;
  const int owners[2] = {owner_of(columns.column(0), share, boxes),
                         owner_of(columns.column(1), share, boxes)};
  uint4 held[kEach];
  bool others[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int place = first + i * kDown;
    const int rank =
        __shfl_sync(cuda::kAllLanes, owners[i * kDown / cuda::kWarp], place % cuda::kWarp);
    others[i] = place < columns.count() && rank != share.part;
    if (others[i])
      held[i] = cuda::load_from_block(cuda::shared_address(own + i * kListedColumns), rank);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (others[i]) own[i * kListedColumns] = held[i];
}

// The outliers of the one tile of a block, whose cluster splits k between `Share::parts` blocks: a
// block picks the codes of its part, and gets the others' from them.
template <class Share>
class ShareOutliers {
 public:
  static constexpr bool kListed = true;
  __device__ __forceinline__ ShareOutliers(const Listed& listed, const Share& share, int boxes,
                                           std::uint16_t* codes)
      : listed_(listed),
        share_(share),
        boxes_(boxes),
        codes_(codes),
        columns_(listed),
        picker_(columns_, codes) {
    picker_.clear();
  }

  __device__ __forceinline__ void pick(int box, const std::uint8_t* rows) const {
    picker_.pick(share_.box(boxes_, share_.part) + box, rows);
  }
  // Asks for the values of a row of the batch.
  __device__ __forceinline__ void touch_row(const Outputs& outputs, int batch,
                                            std::int64_t m) const {
    if (listed_.capacity == 0 || m >= outputs.rows) return;
    touch_element(listed_.values, batch * listed_.batch + m * listed_.row, listed_.dtype);
  }

  // Onto the lane's four columns from n on; `staged` is shared memory of the warp, aligned to 16
  // bytes. The 128 threads call it, after a barrier of the cluster behind the last pick.
  __device__ __forceinline__ void add(const ListedRows& rows, float scales, std::int64_t columns,
                                      int batch, std::int64_t n, float* staged) const {
    switch (listed_.dtype) {
      case DType::Float16:
        return add_all<math::Half>(rows, scales, columns, batch, n, staged);
      case DType::BFloat16:
        return add_all<math::Bfloat16>(rows, scales, columns, batch, n, staged);
      default:
        add_all<float>(rows, scales, columns, batch, n, staged);
    }
  }

 private:
  static constexpr int kThreads = 128;

  __device__ __forceinline__ void wait() const { cuda::named_barrier_wait(1, kThreads); }

  template <class T>
  __device__ __forceinline__ void add_all(const ListedRows& rows, float scales,
                                          std::int64_t columns, int batch, std::int64_t n,
                                          float* staged) const {
    collect_codes(columns_, share_, boxes_, codes_);
    wait();
    const int count = listed_.listed();
    int first = 0;
    do {
      const int held = min(count - first, kPlaces);
      if (first > 0) {
        wait();
        gather_codes<ColumnOrder>(listed_, first, held, kPlaces, n, columns,
                                  static_cast<int>(threadIdx.x), codes_);
        wait();
      }
      if (rows.count > 2)
        add_held<T, kStagedRows>(rows, scales, batch, first, held, staged);
      else if (rows.count > 0)
        add_held<T, 2>(rows, scales, batch, first, held, staged);
      first += kPlaces;
    } while (first < count);
  }

  template <class T, int kRows>
  __device__ __forceinline__ void add_held(const ListedRows& rows, float scales, int batch,
                                           int first, int held, float* staged) const {
    const std::uint16_t* codes = codes_ + 4 * (threadIdx.x % cuda::kWarp);
#pragma unroll 1
    for (int from = 0; from < rows.count; from += kRows) {
      if (held > 0) stage<T, kRows>(rows, from, batch, first, held, staged);
      RowSums<kRows> sums;
      sums.load(rows, from, first == 0, scales);
      int place = 0;
#pragma unroll 1
      for (; place + 4 <= held; place += 4)
        sums.template add<4>(staged + place, codes + place * kListedColumns);
#pragma unroll 1
      for (; place < held; ++place)
        sums.template add<1>(staged + place, codes + place * kListedColumns);
      sums.store(rows, from);
    }
  }

  // Values of kRows rows, from place `first` of the list on; those beyond the last are others
  // again.
  template <class T, int kRows>
  __device__ __forceinline__ void stage(const ListedRows& rows, int from, int batch, int first,
                                        int held, float* staged) const {
    const int lane = threadIdx.x % cuda::kWarp;
    const T* values = static_cast<const T*>(listed_.values) + batch * listed_.batch + first;
    T each[kRows][2];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t m = rows.m + min(from + r, rows.count - 1) * rows.step;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        each[r][half] = values[m * listed_.row + min(lane + half * cuda::kWarp, held - 1)];
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        staged[r * kPlaces + half * cuda::kWarp + lane] = math::widen(each[r][half]);
    __syncwarp();
  }

  const Listed& listed_;
  Share share_;
  int boxes_;
  std::uint16_t* codes_;
  ListedColumns columns_;
  Picker<ColumnOrder> picker_;
};

// Where a product has none.
struct NoOutliers {
  static constexpr bool kListed = false;
  __device__ __forceinline__ void begin(const Outputs&, int, std::int64_t) const {}
  __device__ __forceinline__ void pick(int, const std::uint8_t*) const {}
  __device__ __forceinline__ void touch_row(const Outputs&, int, std::int64_t) const {}
  template <class Sums>
  __device__ __forceinline__ void add(Sums&, const Outputs&, int, std::int64_t,
                                      std::int64_t) const {}
};

}  // namespace planq::linear::wgmma
