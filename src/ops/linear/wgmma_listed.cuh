// Outliers in the kernels of wgmma.cuh: listed columns of the input whose values are added to a
// tile's sums. The weight's codes at the first of these columns are picked from the boxes as they
// pass through shared memory; of lists longer than kPlaces, the others are gathered.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/mbarrier.cuh"
#include "cuda/mma.cuh"
#include "cuda/tensor_map.cuh"
#include "cuda/wgmma.cuh"
#include "ops/linear/wgmma_output.cuh"

namespace planq::linear::wgmma {

// What a kernel does about outliers: a listed column is added by an fma of its own, or sixteen by a
// step of the tensor cores, one after another (math/tensor_core.h).
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
// Lists are completed to whole groups of places. Those of fma have code +0 and value -0 there,
// whose product adds nothing to any sum, not even to one of -0; those of a step are +0.
inline constexpr int kTogether = 4, kStepPlaces = 16;
template <int kGroup>
__device__ __forceinline__ int whole_groups(int count) {
  return (count + kGroup - 1) / kGroup * kGroup;
}
// Values of a warp's rows in shared memory at a time, where the rows are few.
inline constexpr int kStagedRows = 8;
inline constexpr int kStagedBytes = kStagedRows * kPlaces * static_cast<int>(sizeof(float));

// Codes in shared memory are numbers of 16 bits, of which each type has all of int8: bfloat16, or
// those of the outliers where tensor cores multiply both. An order says where a code of a place and
// one of 128 columns is, and how many places are a group.
//
// Place by place, in the order in which a thread of the tensor cores has sums: eight columns at a
// time, with those of its neighbours beside them.
struct FragmentOrder {
  static constexpr int kGroup = kTogether;
  static __device__ __forceinline__ int slot(int place, int column) {
    return place * kListedColumns + column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 +
           column % 2;
  }
};
struct ColumnOrder {
  static constexpr int kGroup = kTogether;
  static __device__ __forceinline__ int slot(int place, int column) {
    return place * kListedColumns + column;
  }
};
// Columns of 64 places, as a factor of a warpgroup's tensor cores lies, with its swizzle.
struct FactorOrder {
  static constexpr int kGroup = kPlaces;
  static __device__ __forceinline__ int slot(int place, int column) {
    return column * kPlaces + (place ^ column % 8 * 8);
  }
};
// Places of 128 columns, of which eight matrices' rows of eight columns are in no bank twice.
struct MatrixOrder {
  static constexpr int kGroup = kStepPlaces;
  static __device__ __forceinline__ int slot(int place, int column) {
    return place * kListedColumns + (column ^ place % 8 * 8);
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
template <class Order>
__device__ __forceinline__ std::uint16_t code_bits(int code, DType outliers) {
  if constexpr (Order::kGroup >= kStepPlaces)
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

// Picks codes of 128 columns at the list's first places, one of kWarps warps that share the places
// between them: a lane has four columns of a place.
template <class Order, int kWarps>
class Picker {
 public:
  __device__ __forceinline__ Picker(const Listed& listed, const ListedColumns& columns, int warp)
      : dtype_(listed.dtype), warp_(warp) {
    const int places = whole_groups<Order::kGroup>(min(columns.count(), kPlaces));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      column_[half] = columns.column(half);
      const int place = lane() + half * cuda::kWarp;
      missing_[half] = __ballot_sync(cuda::kAllLanes, place < places && column_[half] < 0);
    }
  }

  // Where a place names no column, and behind the last, codes are 0.
  __device__ __forceinline__ void clear(std::uint16_t* codes) const {
    const int none[kColumns] = {};
    each_own(missing_, [&](int, int place) { put(codes, place, none); });
  }
  // From box number `box` along k, whose 128 rows are those of the columns. By whole warps.
  __device__ __forceinline__ void pick(int box, const std::uint8_t* rows,
                                       std::uint16_t* codes) const {
    unsigned found[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      found[half] = __ballot_sync(cuda::kAllLanes, column_[half] >> kBoxBits == box);
    if ((found[0] | found[1]) == 0) return;
    // A row's bytes are where the copy's swizzle has put them, which is by 16.
    rows += lane() * cuda::kBoxBytes;
    each_own(found, [&](int half, int place) {
      const int byte =
          __shfl_sync(cuda::kAllLanes, column_[half], place % cuda::kWarp) % cuda::kBoxBytes;
      int each[kColumns];
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
        each[i] = static_cast<std::int8_t>(
            rows[i * cuda::kWarp * cuda::kBoxBytes + (byte ^ lane() % 8 * 16)]);
      put(codes, place, each);
    });
    // Reads of the box come before the warp gives it back.
    __syncwarp();
  }

 private:
  static constexpr int kBoxBits = 7, kColumns = kListedColumns / cuda::kWarp;
  static_assert(1 << kBoxBits == cuda::kBoxBytes);

  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % cuda::kWarp;
  }
  // Calls body(half, place) for this warp's share of the places in two masks.
  template <class Body>
  __device__ __forceinline__ void each_own(const unsigned (&masks)[2], const Body& body) const {
    int turn = warp_;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll 1
      for (unsigned left = masks[half]; left; left &= left - 1) {
        if (turn == 0) body(half, half * cuda::kWarp + __ffs(left) - 1);
        turn = turn == 0 ? kWarps - 1 : turn - 1;
      }
  }
  __device__ __forceinline__ void put(std::uint16_t* codes, int place,
                                      const int (&each)[kColumns]) const {
#pragma unroll
    for (int i = 0; i < kColumns; ++i)
      codes[Order::slot(place, lane() + i * cuda::kWarp)] = code_bits<Order>(each[i], dtype_);
  }

  int column_[2];
  unsigned missing_[2];
  DType dtype_;
  int warp_;
};

// Places `first` and on, up to kPlaces in whole groups, from memory. 128 threads, with the 128
// columns from `n` on.
template <class Order>
__device__ __forceinline__ void gather_codes(const Listed& listed, int first, int count,
                                             std::int64_t n, std::int64_t columns, int thread,
                                             std::uint16_t* codes) {
  const bool inside = n + thread < columns;
  const std::int8_t* row = listed.weight + (inside ? n + thread : 0) * listed.weight_row;
#pragma unroll 1
  for (int place = 0; place < whole_groups<Order::kGroup>(count); place += kTogether) {
    std::int8_t held[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int term = place + i < count ? listed.index[first + place + i] : -1;
      held[i] = inside && term >= 0 && term < listed.terms ? row[term] : std::int8_t{0};
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      codes[Order::slot(place + i, thread)] = code_bits<Order>(held[i], listed.dtype);
  }
}

// Calls body(an element) of the type of outliers; those of tensor cores have 16 bits.
template <Lists kLists, class Body>
__device__ __forceinline__ void with_values(DType dtype, const Body& body) {
  if (dtype == DType::Float16) return body(math::Half{});
  if constexpr (kLists == Lists::Sequential)
    if (dtype == DType::Float32) return body(float{});
  body(math::Bfloat16{});
}

// Asks for the values of a row of the batch at the list's first places.
__device__ __forceinline__ void touch_values(const Listed& listed, int count,
                                             const Outputs& outputs, int batch, std::int64_t m) {
  constexpr int kSectorBytes = 32;
  const auto step = static_cast<int>(kSectorBytes / detail::element_bytes(listed.dtype));
  if (m >= outputs.rows) return;
#pragma unroll 1
  for (int place = 0; place < min(count, kPlaces); place += step)
    touch_element(listed.values, batch * listed.batch + m * listed.row + place, listed.dtype);
}

// --- Tiles of the tensor cores
// ------------------------------------------------------------------------

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

// The codes of one place at a thread's columns.
struct PlaceCodes {
  static constexpr int kEights = kListedColumns / 4 / 8;
  uint4 eights[kEights];

  __device__ __forceinline__ void load(const std::uint16_t* codes, int eight) {
    eights[eight] = reinterpret_cast<const uint4*>(codes)[4 * eight + threadIdx.x % 4];
  }
};

// One place: the products of a thread's rows and its columns, which are those of kTiles times 64
// rows of the tensor cores. Sums are float32 by now, in registers that were declared for int32. The
// codes are those of the place at `following` afterwards.
template <int kTiles>
__device__ __forceinline__ void add_place(int (&sums)[kTiles][kListedColumns / 2],
                                          PlaceCodes& codes, const std::uint16_t* following,
                                          const float (&values)[2 * kTiles]) {
#pragma unroll
  for (int eight = 0; eight < PlaceCodes::kEights; ++eight) {
    const uint4 held = codes.eights[eight];
    const std::uint32_t pairs[4] = {held.x, held.y, held.z, held.w};
    codes.load(following, eight);
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
// reads four bytes of them, and hands them to the others.
template <class T, int kRows>
class RowValues {
 public:
  static constexpr int kEach = 4 / sizeof(T);
  static constexpr int kRead = 4 * kEach;  // places that four lanes read

  const T* at[kRows];

  // Places `first` to first + kRead - 1; those beyond the last are -0.
  __device__ __forceinline__ void read(int first, int count, bool vectors) {
    const int own = first + static_cast<int>(threadIdx.x) % 4 * kEach;
    const int from = own < count ? own : 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      T each[kEach];
      if (vectors) {
        memcpy(each, __builtin_assume_aligned(at[r] + from, 4), sizeof each);
      } else {
#pragma unroll
        for (int i = 0; i < kEach; ++i) each[i] = at[r][min(from + i, count - 1)];
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (own + i >= count) each[i] = math::narrow<T>(-0.0f);
      memcpy(&held_[r], each, sizeof each);
    }
  }
  // One place of those that were read.
  __device__ __forceinline__ void share(int place, float (&values)[kRows]) const {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp / 4 * 4 + place / kEach;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      std::uint32_t word = __shfl_sync(cuda::kAllLanes, held_[r], lane);
      if (place % kEach != 0) word >>= 16;
      T value;
      memcpy(&value, &word, sizeof value);
      values[r] = math::widen(value);
    }
  }

 private:
  std::uint32_t held_[kRows];
};

#ifndef LISTED_AT_ONCE
#define LISTED_AT_ONCE 1
#endif
// Places in their order, whole groups of them. The next values are on their way while these are
// added, and so are the codes of the next place, the last of which are none's. Few instructions, so
// that a multiprocessor's four warps find them nearby.
template <class T, int kTiles>
__device__ __forceinline__ void add_places(int (&sums)[kTiles][kListedColumns / 2],
                                           const std::uint16_t* codes,
                                           RowValues<T, 2 * kTiles>& next, int first, int count,
                                           bool vectors) {
  constexpr int kRead = RowValues<T, 2 * kTiles>::kRead;
  RowValues<T, 2 * kTiles> now = next;
  PlaceCodes held;
#pragma unroll
  for (int eight = 0; eight < PlaceCodes::kEights; ++eight) held.load(codes, eight);
#pragma unroll 1
  for (int place = 0; place < count; place += LISTED_AT_ONCE) {
    if (place % kRead == 0) {
      now = next;
      next.read(first + place + kRead, first + count, vectors);
    }
#pragma unroll
    for (int i = 0; i < LISTED_AT_ONCE; ++i) {
      float values[2 * kTiles];
      now.share(place % kRead + i, values);
      codes += kListedColumns;
      add_place<kTiles>(sums, held, codes, values);
    }
  }
}

// Values of a row at two neighbouring places, 0 beyond the last.
template <class T>
__device__ __forceinline__ std::uint32_t two_values(const T* row, int place, int count,
                                                    bool vectors) {
  std::uint32_t word = 0;
  if (vectors) {
    if (place < count) word = *reinterpret_cast<const std::uint32_t*>(row + place);
  } else {
    if (place < count) word = row[place].bits;
    if (place + 1 < count) word |= std::uint32_t{row[place + 1].bits} << 16;
  }
  return place + 1 == count ? word & 0xFFFF : word;
}

// The rows of which a thread has sums, as a factor of steps: of kSteps of them and kTiles times 64
// rows.
template <class T, int kTiles>
struct StepValues {
  static constexpr int kSteps = kPlaces / kStepPlaces;
  std::uint32_t words[kSteps][kTiles][4];

  __device__ __forceinline__ void read(const T* const (&rows)[2 * kTiles], int first, int count,
                                       bool vectors) {
    const int own = first + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[step][tile][i] = two_values(rows[2 * tile + i % 2],
                                            own + step * kStepPlaces + i / 2 * 8, count, vectors);
  }
};

// Steps over kPlaces, at least one of which is the list's, onto sums that are float32 by now. A
// step of zeros leaves what another step has made as it is.
template <class T, int kTiles>
__device__ __forceinline__ void add_steps(int (&sums)[kTiles][kListedColumns / 2],
                                          const StepValues<T, kTiles>& values,
                                          const std::uint16_t* codes) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
  const std::uint64_t factor =
      cuda::factor_of(static_cast<std::uint32_t>(cuda::uniform(cuda::shared_address(codes))));
  cuda::begin_products();
#pragma unroll
  for (int step = 0; step < StepValues<T, kTiles>::kSteps; ++step)
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      cuda::add_step_of<T>(sums[tile], values.words[step][tile],
                           cuda::advanced(factor, step * cuda::kProductDepth));
  cuda::commit_products();
  cuda::wait_for_products<0>();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
}

// Names of barriers of a tile's four warps: their own, and those with the warps that pick for them,
// when the codes' shared memory is free and when it is full.
struct TileBarriers {
  int own, free, full;
};
inline constexpr int kPickWarps = 3;
inline constexpr int kPickThreads = (4 + kPickWarps) * cuda::kWarp;
template <Lists kLists>
using TileOrder = std::conditional_t<kLists == Lists::Tensor, FactorOrder, FragmentOrder>;

// The outliers of the tiles that four warps have after each other. `codes`: shared memory of these
// warps, free while they multiply, aligned to 1024 bytes.
template <Lists kLists>
class TileOutliers {
 public:
  __device__ __forceinline__ TileOutliers(const Listed& listed, std::uint16_t* codes,
                                          const TileBarriers& barriers)
      : listed_(listed), codes_(codes), barriers_(barriers), count_(listed.listed()) {}

  // Before a tile, once the one before it is stored.
  __device__ __forceinline__ void begin() const {
    cuda::named_barrier_arrive(barriers_.free, kPickThreads);
  }
  __device__ __forceinline__ void touch_row(const Outputs& outputs, int batch,
                                            std::int64_t m) const {
    touch_values(listed_, count_, outputs, batch, m);
  }
  __device__ __forceinline__ void pick(int, const std::uint8_t*) const {}

  // All listed columns onto sums with their rows' scales, of rows m + 64 tile and columns n on; m
  // is the warp's. Afterwards the shared memory is free.
  template <int kTiles>
  __device__ __forceinline__ void add(int (&sums)[kTiles][kListedColumns / 2],
                                      const Outputs& outputs, int batch, std::int64_t m,
                                      std::int64_t n) const {
    with_values<kLists>(listed_.dtype, [&]<class T>(T) {
      if constexpr (kLists == Lists::Tensor)
        add_in_steps<T>(sums, outputs, batch, m, n);
      else
        add_all<T>(sums, outputs, batch, m, n);
    });
    wait();
  }

 private:
  static constexpr int kThreads = 128;

  __device__ __forceinline__ void wait() const {
    cuda::named_barrier_wait(barriers_.own, kThreads);
  }
  __device__ __forceinline__ void wait_for_codes() const {
    cuda::named_barrier_wait(barriers_.full, kPickThreads);
  }

  template <class T, int kRows>
  __device__ __forceinline__ void find_rows(const T* (&rows)[kRows], const Outputs& outputs,
                                            int batch, std::int64_t m) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      rows[r] = static_cast<const T*>(listed_.values) + batch * listed_.batch +
                fragment_row(m, r, outputs.rows) * listed_.row;
  }

  template <class T, int kTiles>
  __device__ __forceinline__ void add_in_steps(int (&sums)[kTiles][kListedColumns / 2],
                                               const Outputs& outputs, int batch, std::int64_t m,
                                               std::int64_t n) const {
    const T* rows[2 * kTiles];
    find_rows(rows, outputs, batch, m);
    wait_for_codes();
#pragma unroll 1
    for (int first = 0; first < count_; first += kPlaces) {
      StepValues<T, kTiles> values;
      values.read(rows, first, count_, listed_.vectors);
      if (first > 0) {
        wait();
        gather(first, n, outputs.columns);
        cuda::show_to_products();
        wait();
      }
      add_steps(sums, values, codes_);
    }
  }

  template <class T, int kTiles>
  __device__ __forceinline__ void add_all(int (&sums)[kTiles][kListedColumns / 2],
                                          const Outputs& outputs, int batch, std::int64_t m,
                                          std::int64_t n) const {
    RowValues<T, 2 * kTiles> values;
    find_rows(values.at, outputs, batch, m);
    if (count_ > 0) values.read(0, count_, listed_.vectors);
    wait_for_codes();
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
    gather_codes<TileOrder<kLists>>(listed_, first, min(count_ - first, kPlaces), n, columns,
                                    static_cast<int>(threadIdx.x) % kThreads, codes_);
  }

  const Listed& listed_;
  std::uint16_t* codes_;
  TileBarriers barriers_;
  int count_;
};

// --- Few tokens
// ---------------------------------------------------------------------------------------

// Rows of sums in shared memory that a lane adds outliers to, four columns of each: number i is
// `pitch` sums behind number i - 1, and row m + i * step of the output. Its scale is in lane i.
struct ListedRows {
  int* sums;
  int pitch, count;
  std::int64_t m, step;
};

// Values of kRows rows at some places, and the codes there of a lane's four columns.
template <int kRows>
struct PlaceGroup {
  float values[kRows][kTogether];
  uint2 codes[kTogether];

  __device__ __forceinline__ PlaceGroup(const float* staged, const std::uint16_t* from) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const auto held = *reinterpret_cast<const float4*>(staged + r * kPlaces);
      memcpy(values[r], &held, sizeof held);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      codes[i] = *reinterpret_cast<const uint2*>(from + i * kListedColumns);
  }
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
  __device__ __forceinline__ void add(const PlaceGroup<kRows>& group) {
#pragma unroll
    for (int place = 0; place < kTogether; ++place) {
      float code[2][2];
      widen_pair(group.codes[place].x, code[0]);
      widen_pair(group.codes[place].y, code[1]);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          t[r][i] = math::fused(group.values[r][place], code[i / 2][i % 2], t[r][i]);
    }
  }
};

// Values of kRows rows at `held` places, into shared memory, two places a lane. `values`: of the
// first row; those beyond the last are others again, those beyond the last place -0.
template <class T, int kRows>
__device__ __forceinline__ void stage_values(const T* values, std::int64_t step, int rows, int held,
                                             float* staged) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  T each[kRows][2];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      each[r][half] = values[min(r, rows - 1) * step + min(lane + half * cuda::kWarp, held - 1)];
  __syncwarp();
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int place = lane + half * cuda::kWarp;
      staged[r * kPlaces + place] = place < held ? math::widen(each[r][half]) : -0.0f;
    }
  __syncwarp();
}

// Eight rows and sixteen columns of the sums of ListedRows, as a warp's tensor cores have them,
// from number `from` and column `column` on. Those beyond the last row are the last one again. Lane
// l has rows 2 (l % 4) and the next at columns l / 4 and eight further.
class RowFragment {
 public:
  float t[4];

  __device__ __forceinline__ RowFragment(const ListedRows& rows, int from, int column)
      : left_(rows.count - from - lane() % 4 * 2) {
    // The lane's own columns are four for each lane before it.
    at_ = rows.sums - 4 * lane() + (rows.count - max(left_, 1)) * rows.pitch + column + lane() / 4;
    pitch_ = left_ > 1 ? rows.pitch : 0;
  }
  // Sums that are int32 become float32, with their rows' scales.
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

  int left_, pitch_;  // rows from the lane's first on
  int* at_;
};

// The outliers of the one tile of a block, whose cluster splits k between `Share::parts` blocks: a
// block picks the codes of its part, and gets the others' from them.
template <class Share, Lists kLists>
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
        picker_(listed, columns_, static_cast<int>(threadIdx.x) / cuda::kWarp) {
    picker_.clear(codes);
  }

  __device__ __forceinline__ void pick(int box, const std::uint8_t* rows) const {
    picker_.pick(share_.box(boxes_, share_.part) + box, rows, codes_);
  }
  __device__ __forceinline__ void touch_row(const Outputs& outputs, int batch,
                                            std::int64_t m) const {
    touch_values(listed_, columns_.count(), outputs, batch, m);
  }

  // Onto the lane's four columns from n on; `staged` is shared memory of the warp, aligned to 16
  // bytes. The 128 threads call it, after a barrier of the cluster behind the last pick.
  __device__ __forceinline__ void add(const ListedRows& rows, float scales, std::int64_t columns,
                                      int batch, std::int64_t n, float* staged) const {
    with_values<kLists>(listed_.dtype,
                        [&]<class T>(T) { add_all<T>(rows, scales, columns, batch, n, staged); });
  }

 private:
  static constexpr int kThreads = 128;
  using Order = std::conditional_t<kLists == Lists::Tensor, MatrixOrder, ColumnOrder>;

  __device__ __forceinline__ void wait() const { cuda::named_barrier_wait(1, kThreads); }

  template <class T>
  __device__ __forceinline__ void add_all(const ListedRows& rows, float scales,
                                          std::int64_t columns, int batch, std::int64_t n,
                                          float* staged) const {
    collect();
    wait();
    const int count = columns_.count();
    int first = 0;
    do {
      const int held = min(count - first, kPlaces);
      if (first > 0) {
        wait();
        gather_codes<Order>(listed_, first, held, n, columns, static_cast<int>(threadIdx.x),
                            codes_);
        wait();
      }
      if constexpr (kLists == Lists::Tensor)
        add_steps<T>(rows, scales, batch, first, held);
      else if (rows.count > 4)
        add_held<T, kStagedRows>(rows, scales, batch, first, held, staged);
      else if (rows.count > 2)
        add_held<T, 4>(rows, scales, batch, first, held, staged);
      else if (rows.count > 0)
        add_held<T, 2>(rows, scales, batch, first, held, staged);
      first += kPlaces;
    } while (first < count);
  }

  // The block that has this lane's column of a half of the list in its part of k; this one where
  // there is none.
  __device__ __forceinline__ int owner(int half) const {
    const int column = columns_.column(half);
    if (column < 0) return share_.part;
    const int box = column / cuda::kBoxBytes;
    return static_cast<int>((std::int64_t{box + 1} * share_.parts + boxes_ - 1) / boxes_) - 1;
  }

  // The codes that other blocks of the cluster have picked: all at once, for it takes long.
  __device__ __forceinline__ void collect() const {
    if (share_.parts == 1) return;
    constexpr int kAcross = kListedColumns * 2 / 16, kDown = kThreads / kAcross;
    constexpr int kEach = kPlaces / kDown;
    const int first = static_cast<int>(threadIdx.x) / kAcross;
    auto* own = reinterpret_cast<uint4*>(codes_) + threadIdx.x;
    const int owners[2] = {owner(0), owner(1)};
    uint4 held[kEach];
    bool others[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int place = first + i * kDown;
      const int rank =
          __shfl_sync(cuda::kAllLanes, owners[i * kDown / cuda::kWarp], place % cuda::kWarp);
      others[i] = place < columns_.count() && rank != share_.part;
      if (others[i])
        held[i] = cuda::load_from_block(cuda::shared_address(own + i * kThreads), rank);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (others[i]) own[i * kThreads] = held[i];
  }

  // Steps over `held` places from number `first` of the list on, eight rows at a time.
  template <class T>
  __device__ __forceinline__ void add_steps(const ListedRows& rows, float scales, int batch,
                                            int first, int held) const {
    constexpr int kSteps = kPlaces / kStepPlaces, kRows = 8;
    const int lane = threadIdx.x % cuda::kWarp;
    const T* values = static_cast<const T*>(listed_.values) + batch * listed_.batch +
                      rows.m * listed_.row + first;
#pragma unroll 1
    for (int from = 0; from < rows.count; from += kRows) {
      const int row = min(from + lane / 4, rows.count - 1);
      std::uint32_t words[kSteps][2];
#pragma unroll
      for (int i = 0; i < 2 * kSteps; ++i)
        words[i / 2][i % 2] = two_values(values + row * rows.step * listed_.row,
                                         8 * i + lane % 4 * 2, held, listed_.vectors);
      const float own[2] = {__shfl_sync(cuda::kAllLanes, scales, from + lane % 4 * 2),
                            __shfl_sync(cuda::kAllLanes, scales, from + lane % 4 * 2 + 1)};
#pragma unroll 2
      for (int column = 0; column < kListedColumns; column += 16) {
        RowFragment sums(rows, from, column);
        sums.load(first == 0, own);
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          if (step * kStepPlaces < held) add_step<T>(sums, words[step], step, column);
        __syncwarp();  // a row beyond the last was read in place of the last one
        sums.store();
      }
    }
    __syncwarp();
  }
  // Codes are the first factor: their rows are columns of the output.
  template <class T>
  __device__ __forceinline__ void add_step(RowFragment& sums, const std::uint32_t (&values)[2],
                                           int step, int column) const {
    const int lane = threadIdx.x % cuda::kWarp;
    const int place = step * kStepPlaces + lane % 8 + lane / 16 * 8;
    std::uint32_t codes[4];
    cuda::load_matrices_transposed(
        codes, cuda::shared_address(codes_ + Order::slot(place, column + lane / 8 % 2 * 8)));
    cuda::multiply_add_floats<T>(sums.t, codes, values[0], values[1]);
  }

  // `held` places from number `first` of the list on.
  template <class T, int kRows>
  __device__ __forceinline__ void add_held(const ListedRows& rows, float scales, int batch,
                                           int first, int held, float* staged) const {
    const std::uint16_t* codes = codes_ + 4 * (threadIdx.x % cuda::kWarp);
    const std::int64_t step = rows.step * listed_.row;
    const T* values = static_cast<const T*>(listed_.values) + batch * listed_.batch +
                      rows.m * listed_.row + first;
#pragma unroll 1
    for (int from = 0; from < rows.count; from += kRows) {
      if (held > 0)
        stage_values<T, kRows>(values + from * step, step, rows.count - from, held, staged);
      RowSums<kRows> sums;
      sums.load(rows, from, first == 0, scales);
      add_groups(sums, staged, codes, held);
      sums.store(rows, from);
    }
  }
  // A group's values and codes are on their way while those of the group before are added.
  template <int kRows>
  static __device__ __forceinline__ void add_groups(RowSums<kRows>& sums, const float* staged,
                                                    const std::uint16_t* codes, int held) {
    PlaceGroup<kRows> group(staged, codes);
#pragma unroll 1
    for (int place = 0; place < held; place += kTogether) {
      const int next = place + kTogether < held ? place + kTogether : 0;
      const PlaceGroup<kRows> following(staged + next, codes + next * kListedColumns);
      sums.add(group);
      group = following;
    }
  }

  const Listed& listed_;
  Share share_;
  int boxes_;
  std::uint16_t* codes_;
  ListedColumns columns_;
  Picker<Order, kThreads / cuda::kWarp> picker_;
};

// Where a product has none.
struct NoOutliers {
  static constexpr bool kListed = false;
  __device__ __forceinline__ void begin() const {}
  __device__ __forceinline__ void pick(int, const std::uint8_t*) const {}
  __device__ __forceinline__ void touch_row(const Outputs&, int, std::int64_t) const {}
  template <class Sums>
  __device__ __forceinline__ void add(Sums&, const Outputs&, int, std::int64_t,
                                      std::int64_t) const {}
};

}  // namespace planq::linear::wgmma
