// Outliers in the kernels of sm90/int8.cuh: listed columns of the input whose values are added to a
// tile's sums. Warps of their own pick the weight's codes at the first of these columns from the
// boxes, as they pass through shared memory, or bring those that a kernel before has listed; of
// lists longer than kPlaces, the others are gathered.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/mbarrier.cuh"
#include "cuda/mma.cuh"
#include "cuda/pairs.cuh"
#include "cuda/tensor_map.cuh"
#include "ops/linear/sm90/epilogue.cuh"

namespace planq::linear::sm90 {

// What a kernel does about outliers: a listed column is added by an fma of its own, or sixteen by a
// step of the tensor cores (linear_llm_int8/sm90_steps.cuh), one after another.
enum class OutlierSums { None, Sequential, Tensor };

// How many columns a list of this capacity has, which says that it has `count`.
__device__ __forceinline__ int listed_of(std::int64_t count, std::int32_t capacity) {
  const std::int64_t held = count < capacity ? count : capacity;
  return static_cast<int>(held < 0 ? 0 : held);
}

// What a product with outliers has beside its factors. Strides count elements.
struct OutlierList {
  const std::int32_t* index;
  const std::int64_t* count;
  const void* values;  // by row and place in the list
  std::int64_t row, batch;
  const std::int8_t* weight;
  std::int64_t weight_row;
  // The weight's codes by place and column, if a kernel before has listed them: else they are
  // picked.
  const std::int8_t* codes;
  std::int64_t pitch;
  std::int32_t capacity, terms;
  DType dtype;
  bool vectors;  // four neighbouring values are an aligned vector

  __device__ __forceinline__ int listed() const { return listed_of(*count, capacity); }
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
  static __device__ __forceinline__ int places(int count) { return min(count, kPlaces); }
};
struct ColumnOrder {
  static constexpr bool kOutliersType = false;
  static __device__ __forceinline__ int slot(int place, int column) {
    return place * kListedColumns + column;
  }
  static __device__ __forceinline__ int places(int count) { return min(count, kPlaces); }
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

// The list's first places, which all lanes of a warp have between them. Nothing waits for the
// memory before it is asked.
class OutlierColumns {
 public:
  __device__ __forceinline__ explicit OutlierColumns(const OutlierList& listed)
      : held_(*listed.count), capacity_(listed.capacity), terms_(listed.terms) {
    const int lane = threadIdx.x % cuda::kWarp;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      read_[half] =
          capacity_ > 0 ? listed.index[min(lane + half * cuda::kWarp, capacity_ - 1)] : -1;
  }
  // Of the whole list.
  __device__ __forceinline__ int count() const { return listed_of(held_, capacity_); }
  // The column at this lane's place of a half of the list, or -1.
  __device__ __forceinline__ int column(int half) const {
    const int place = static_cast<int>(threadIdx.x) % cuda::kWarp + half * cuda::kWarp;
    const bool exists = read_[half] >= 0 && read_[half] < terms_;
    return place < count() && exists ? read_[half] : -1;
  }

 private:
  std::int64_t held_;
  std::int32_t capacity_, terms_;
  int read_[2];
};

// Warps that bring codes, beside those that multiply.
inline constexpr int kPickWarps = 3;

// A lane's four of the 128 columns are every 32nd.
inline constexpr int kLaneColumns = kListedColumns / cuda::kWarp;
template <class Order>
__device__ __forceinline__ void put_codes(std::uint16_t* codes, int place,
                                          const int (&each)[kLaneColumns], DType outliers) {
#pragma unroll
  for (int i = 0; i < kLaneColumns; ++i) {
    const int column = static_cast<int>(threadIdx.x) % cuda::kWarp + i * cuda::kWarp;
    codes[Order::slot(place, column)] = code_bits<Order>(each[i], outliers);
  }
}

// Brings the codes of columns n and on that a kernel before has listed. For warp number `warp`.
template <class Order>
__device__ __forceinline__ void bring_codes(const OutlierList& listed, int count, std::int64_t n,
                                            int warp, std::uint16_t* codes) {
  constexpr int kAtOnce = 2;  // places
  const std::int64_t first = n + static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int places = Order::places(count);
#pragma unroll 1
  for (int from = warp * kAtOnce; from < places; from += kPickWarps * kAtOnce) {
    int each[kAtOnce][kLaneColumns];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
#pragma unroll
      for (int i = 0; i < kLaneColumns; ++i) {
        const std::int64_t column = first + i * cuda::kWarp;
        each[j][i] = from + j < count && column < listed.pitch
                         ? listed.codes[(from + j) * listed.pitch + column]
                         : std::int8_t{0};
      }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (from + j < places) put_codes<Order>(codes, from + j, each[j], listed.dtype);
  }
}

// Picks codes of 128 columns at the list's first places.
template <class Order>
class Picker {
 public:
  __device__ __forceinline__ Picker(const OutlierList& listed, const OutlierColumns& columns)
      : dtype_(listed.dtype) {
    const int places = Order::places(columns.count());
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      column_[half] = columns.column(half);
      const int place = lane() + half * cuda::kWarp;
      missing_[half] = __ballot_sync(cuda::kAllLanes, place < places && column_[half] < 0);
    }
  }

  // Where a place names no column, and behind the last, codes are 0. For warp number `warp`.
  __device__ __forceinline__ void clear(std::uint16_t* codes, int warp) const {
    const int none[kLaneColumns] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll 1
      for (int place = warp; place < cuda::kWarp; place += kPickWarps)
        if (missing_[half] >> place & 1) put(codes, half * cuda::kWarp + place, none);
  }
  // From box number `box` along k, whose 128 rows are those of the columns. By a whole warp.
  __device__ __forceinline__ void pick(int box, const std::uint8_t* rows,
                                       std::uint16_t* codes) const {
    // A row's bytes are where the copy's swizzle has put them, which is by 16.
    rows += lane() * cuda::kBoxBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned left = __ballot_sync(cuda::kAllLanes, column_[half] >> kBoxBits == box);
#pragma unroll 1
      while (left != 0) {
        // Two places at a time; the last one twice where they are odd.
        const int first = __ffs(left) - 1;
        left &= left - 1;
        const int second = left != 0 ? __ffs(left) - 1 : first;
        left &= left - 1;
        int each[2][kLaneColumns];
        read(half, first, rows, each[0]);
        read(half, second, rows, each[1]);
        put(codes, half * cuda::kWarp + first, each[0]);
        put(codes, half * cuda::kWarp + second, each[1]);
      }
    }
    // Reads of the box come before the warp gives it back.
    __syncwarp();
  }

 private:
  static constexpr int kBoxBits = 7;
  static_assert(1 << kBoxBits == cuda::kBoxBytes);

  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % cuda::kWarp;
  }
  __device__ __forceinline__ void read(int half, int place, const std::uint8_t* rows,
                                       int (&each)[kLaneColumns]) const {
    const int byte = __shfl_sync(cuda::kAllLanes, column_[half], place) % cuda::kBoxBytes;
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i)
      each[i] = static_cast<std::int8_t>(
          rows[i * cuda::kWarp * cuda::kBoxBytes + (byte ^ lane() % 8 * 16)]);
  }
  __device__ __forceinline__ void put(std::uint16_t* codes, int place,
                                      const int (&each)[kLaneColumns]) const {
    put_codes<Order>(codes, place, each, dtype_);
  }

  int column_[2];
  unsigned missing_[2];
  DType dtype_;
};

// Places `first` and on, up to kPlaces, from memory, and codes of 0 behind them up to number
// `places`, a multiple of four. 128 threads, with the 128 columns from `n` on.
template <class Order>
__device__ __forceinline__ void gather_codes(const OutlierList& listed, int first, int count,
                                             int places, std::int64_t n, std::int64_t columns,
                                             int thread, std::uint16_t* codes) {
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

// The scales of those rows.
template <int kTiles>
__device__ __forceinline__ void read_scales(float (&scales)[2 * kTiles], const Outputs& outputs,
                                            int batch, std::int64_t m) {
  const Epilogue& e = outputs.epilogue;
  with_float(e.scale_dtype, [&]<class T>(T) {
    const T* from = static_cast<const T*>(e.input_scale) + batch * outputs.scale_batch;
    T held[2 * kTiles];
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r)
      held[r] = from[fragment_row(m, r, outputs.rows) * e.input_scale_row];
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r) scales[r] = static_cast<float>(math::widen(held[r]));
  });
}
// Sums become float32, under their rows' scales, in the registers where they are.
template <int kTiles, int kCount>
__device__ __forceinline__ void scale_rows(int (&sums)[kTiles][kCount],
                                           const float (&scales)[2 * kTiles]) {
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

// A thread's codes of a place.
struct PlaceCodes {
  static constexpr int kEights = kListedColumns / 4 / 8;

  uint4 eight[kEights];

  __device__ __forceinline__ void read(const std::uint16_t* codes) {
    const auto* from =
        reinterpret_cast<const uint4*>(codes + threadIdx.x % 4 * (kListedColumns / 4));
#pragma unroll
    for (int i = 0; i < kEights; ++i) eight[i] = from[i];
  }
};

// One place: the products of a thread's rows and its columns, which are those of kTiles times 64
// rows of the tensor cores. Sums are float32 by now, in registers that were declared for int32.
// Each eight codes give way to those of the next place, which are then under way for long enough.
template <int kTiles>
__device__ __forceinline__ void add_place(int (&sums)[kTiles][kListedColumns / 2],
                                          PlaceCodes& codes, const std::uint16_t* next,
                                          const float (&values)[2 * kTiles]) {
  const auto* from = reinterpret_cast<const uint4*>(next + threadIdx.x % 4 * (kListedColumns / 4));
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

// Value number i of those that lie in words one after another.
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
  // Places `place`, an even one of those that were read, and the next.
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

// Places in their order, of which `values` has the first ones. What an iteration needs of memory
// and of other lanes, an earlier one asks for; it has no more than two places, since these are
// hundreds of instructions.
template <class T, int kTiles>
__device__ __forceinline__ void add_places(int (&sums)[kTiles][kListedColumns / 2],
                                           const std::uint16_t* codes,
                                           RowValues<T, 2 * kTiles>& values, int first, int count,
                                           bool vectors) {
  constexpr int kRead = RowValues<T, 2 * kTiles>::kRead;
  PlaceCodes held;
  held.read(codes);
  PlacePair<T, 2 * kTiles> next = values.pair(0);
#pragma unroll 1
  for (int place = 0; place < count; place += 2, codes += 2 * kListedColumns) {
    float two[2][2 * kTiles];
    next.widen(two);
    next = values.pair(place + 2);
    if (place % kRead == kRead - 4) values.read(first + place + 4, first + count, vectors);
    const bool both = place + 1 < count;
    add_place<kTiles>(sums, held, codes + (both ? kListedColumns : 0), two[0]);
    if (both)
      add_place<kTiles>(sums, held, codes + (place + 2 < count ? 2 : 1) * kListedColumns, two[1]);
  }
}

// Asks for the values of a row of the batch at the list's first places, up to number `count`.
__device__ __forceinline__ void touch_values(const OutlierList& listed, int count,
                                             const Outputs& outputs, int batch, std::int64_t m) {
  constexpr int kSectorBytes = 32;
  const auto step = static_cast<int>(kSectorBytes / detail::element_bytes(listed.dtype));
  if (m >= outputs.rows) return;
#pragma unroll 1
  for (int place = 0; place < min(count, kPlaces); place += step)
    touch_element(listed.values, batch * listed.batch + m * listed.row + place, listed.dtype);
}

// Names of barriers of a tile's four warps: their own, and those with the warps that bring codes
// for them, when the codes' shared memory is free and when it is full.
struct TileBarriers {
  int own, free, full;
};
inline constexpr int kPickThreads = (4 + kPickWarps) * cuda::kWarp;

// The outliers of the tiles that four warps have after each other, of kTiles times 64 rows.
// `codes`: shared memory of these warps, free while they multiply.
template <int kTiles>
class TileOutliers {
 public:
  using Order = FragmentOrder;

  float scales[2 * kTiles];

  __device__ __forceinline__ TileOutliers(const OutlierList& listed, std::uint16_t* codes,
                                          const TileBarriers& barriers)
      : listed_(listed), codes_(codes), barriers_(barriers), count_(listed.listed()) {}

  // Whether these warps need the tensor cores for the list, too.
  __device__ __forceinline__ bool has_steps() const { return false; }
  // Before a tile, once the one before it is stored: what its rows have is on the way while it is
  // multiplied. m: the warp's first row.
  __device__ __forceinline__ void begin(const Outputs& outputs, int batch, std::int64_t m) {
    cuda::named_barrier_arrive(barriers_.free, kPickThreads);
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    touch_values(listed_, count_, outputs, batch, m + lane % 16 + lane / 16 * cuda::kProductRows);
    read_scales<kTiles>(scales, outputs, batch, m);
  }

  // All listed columns onto sums with their rows' scales, of rows m + 64 tile and columns n on; m
  // is the warp's. Afterwards the shared memory is free.
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

  __device__ __forceinline__ void wait() const {
    cuda::named_barrier_wait(barriers_.own, kThreads);
  }

  template <class T>
  __device__ __forceinline__ void add_all(int (&sums)[kTiles][kListedColumns / 2],
                                          const Outputs& outputs, int batch, std::int64_t m,
                                          std::int64_t n) const {
    RowValues<T, 2 * kTiles> values;
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r)
      values.at[r] = static_cast<const T*>(listed_.values) + batch * listed_.batch +
                     fragment_row(m, r, outputs.rows) * listed_.row;
    if (count_ > 0) values.read(0, count_, listed_.vectors);
    cuda::named_barrier_wait(barriers_.full, kPickThreads);
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

  const OutlierList& listed_;
  std::uint16_t* codes_;
  TileBarriers barriers_;
  int count_;
};

// --- Few tokens ---------------------------------------------------------------------------------

// Rows of sums in shared memory that a lane adds outliers to, four columns of each: number i is
// `pitch` sums behind number i - 1, and row m + i * step of the output. Its scale is in lane i.
struct OutlierRows {
  int* sums;
  int pitch, count;
  std::int64_t m, step;
};

// Where a block's tile lies: in a product of the batch, from column n of the output on.
struct SharePlace {
  int batch;
  std::int64_t n;
};

// Places `first` and on of the list for the block's 128 columns, in place of those before. By its
// 128 threads that multiply.
template <class Order>
__device__ __forceinline__ void gather_share(const OutlierList& listed, int first, int held,
                                             std::int64_t n, std::int64_t columns,
                                             std::uint16_t* codes) {
  constexpr int kThreads = 128, kBarrier = 1;
  cuda::named_barrier_wait(kBarrier, kThreads);
  gather_codes<Order>(listed, first, held, Order::places(held), n, columns,
                      static_cast<int>(threadIdx.x), codes);
  cuda::named_barrier_wait(kBarrier, kThreads);
}

// kRows of them, from number `from` on; those beyond the last are the last one again.
template <int kRows>
struct RowSums {
  float t[kRows][4];

  // Sums that are int32 become float32, with their rows' scales.
  __device__ __forceinline__ void load(const OutlierRows& rows, int from, bool integers,
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
  __device__ __forceinline__ void store(const OutlierRows& rows, int from) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (from + r < rows.count)
        *reinterpret_cast<float4*>(rows.sums + (from + r) * rows.pitch) =
            make_float4(t[r][0], t[r][1], t[r][2], t[r][3]);
  }
  // kCount places: their values, row by row, and the lane's four codes of each.
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
  const unsigned box = static_cast<unsigned>(column) / cuda::kBoxBytes;
  const auto count = static_cast<unsigned>(boxes);
  return static_cast<int>(((box + 1) * static_cast<unsigned>(share.parts) + count - 1) / count) - 1;
}

// The codes, place by place, that other blocks of the cluster have picked: all at once, for it
// takes long. By 128 threads, of which this one is number `thread`, after a barrier of the cluster.
template <class Share>
__device__ __forceinline__ void collect_codes(const OutlierColumns& columns, const Share& share,
                                              int boxes, int thread, std::uint16_t* codes) {
  if (share.parts == 1) return;
  constexpr int kAcross = kListedColumns * 2 / 16, kDown = kListedColumns / kAcross;
  constexpr int kEach = kPlaces / kDown;
  const int first = thread / kAcross;
  auto* own = reinterpret_cast<uint4*>(codes) + thread;
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

// Copies values of rows `from` to from + kStagedRows - 1, from place `first` of the list on, to the
// warp's shared memory, as they are; beyond the capacity there are none. For wait_for_copies().
template <class T>
__device__ __forceinline__ void copy_values(const OutlierList& listed, const OutlierRows& rows,
                                            int from, int batch, int first, T* staged) {
  constexpr int kAcross = kPlaces / 4, kDown = cuda::kWarp / kAcross;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp, place = lane % kAcross * 4;
  const int count = min(rows.count - from, kStagedRows), left = listed.capacity - first - place;
  const T* values = static_cast<const T*>(listed.values) + batch * listed.batch + first + place;
#pragma unroll 1
  for (int r = lane / kAcross; r < count; r += kDown) {
    const T* row = values + (rows.m + (from + r) * rows.step) * listed.row;
    T* to = staged + r * kPlaces + place;
    if (!listed.vectors) {
      for (int i = 0; i < min(left, 4); ++i) to[i] = row[i];
    } else if (left > 0) {
      cuda::copy_async<4 * sizeof(T)>(cuda::shared_address(to), row);
    }
  }
}

// Calls body(an element) of the outliers' type, of 16 bits.
template <class Body>
__device__ __forceinline__ void with_values(DType dtype, const Body& body) {
  if (dtype == DType::Float16)
    body(math::Half{});
  else
    body(math::Bfloat16{});
}

// Of any type.
template <class Body>
__device__ __forceinline__ void with_any_values(DType dtype, const Body& body) {
  if (dtype == DType::Float32)
    body(float{});
  else
    with_values(dtype, body);
}

// What the warps that multiply have to do with the list of a block's one tile. Its codes are picked
// by other warps, from all blocks of the cluster.
class ShareOutliers {
 public:
  using Order = ColumnOrder;

  // `staged`: shared memory of the warp, aligned to 16 bytes.
  __device__ __forceinline__ ShareOutliers(const OutlierList& listed, std::uint16_t* codes,
                                           const SharePlace& place, float* staged)
      : listed_(listed), codes_(codes), place_(place), staged_(staged), held_(*listed.count) {}

  // What is read from memory, before it is needed.
  __device__ __forceinline__ void ask(const OutlierRows& rows) const {
    with_any_values(listed_.dtype, [&]<class T>(T) { copy<T>(rows, 0, 0); });
  }
  // Onto the rows' 128 columns. The 128 threads call it, once the codes of the first places are
  // complete.
  __device__ __forceinline__ void add(const OutlierRows& rows, float scales,
                                      std::int64_t columns) const {
    with_any_values(listed_.dtype, [&]<class T>(T) { add_all<T>(rows, scales, columns); });
  }

 private:
  template <class T>
  __device__ __forceinline__ T* staged() const {
    return reinterpret_cast<T*>(staged_);
  }
  template <class T>
  __device__ __forceinline__ void copy(const OutlierRows& rows, int from, int first) const {
    copy_values(listed_, rows, from, place_.batch, first, staged<T>());
  }

  template <class T>
  __device__ __forceinline__ void add_all(const OutlierRows& rows, float scales,
                                          std::int64_t columns) const {
    const int count = listed_of(held_, listed_.capacity);
    int first = 0;
    do {
      const int held = min(count - first, kPlaces);
      if (first > 0) gather_share<ColumnOrder>(listed_, first, held, place_.n, columns, codes_);
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
  __device__ __forceinline__ void add_held(const OutlierRows& rows, float scales, int first,
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
      // Of few rows, more places at a time: what they wait for is the shared memory.
      constexpr int kTimes = kRows > 2 ? 1 : 2;
      int place = 0;
#pragma unroll kTimes
      for (; place + 4 <= held; place += 4)
        sums.template add<4>(staged<T>() + place, codes + place * kListedColumns);
#pragma unroll 1
      for (; place < held; ++place)
        sums.template add<1>(staged<T>() + place, codes + place * kListedColumns);
      sums.store(rows, from);
    }
  }

  const OutlierList& listed_;
  std::uint16_t* codes_;
  SharePlace place_;
  float* staged_;
  std::int64_t held_;
};

// Where a product has none.
struct NoOutliers {
  __device__ __forceinline__ bool has_steps() const { return false; }
  __device__ __forceinline__ void begin(const Outputs&, int, std::int64_t) const {}
};

}  // namespace planq::linear::sm90
