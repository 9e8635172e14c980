// The list of outliers in kernels for sm_90a: listed columns of the input whose values are added to
// a tile's sums. Warps of their own pick the weight's codes at the first of these columns from the
// stages, as they pass through shared memory, or bring those that a kernel before has listed; of
// lists longer than kPlaces, the others are gathered.
#pragma once

#include <cstdint>

#include "cuda/mbarrier.cuh"
#include "cuda/pairs.cuh"
#include "cuda/tensor_map.cuh"
#include "ops/linear/sm90/addend.cuh"
#include "ops/linear/sm90/epilogue.cuh"

namespace planq::linear_llm_int8::sm90 {

using namespace linear;
using namespace linear::sm90;

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
inline constexpr int kCodeColumns = 128;
inline constexpr int kCodeBytes = kPlaces * kCodeColumns * 2;
// Values of a warp's rows in shared memory at a time, where the rows are few.
inline constexpr int kStagedRows = 8;
inline constexpr int kStagedBytes = kStagedRows * kPlaces * static_cast<int>(sizeof(float));

// Codes in shared memory are bfloat16, which has all of int8: place by place, those of 128 columns
// in the order in which a thread of the tensor cores has them.
struct FragmentOrder {
  static constexpr bool kOutliersType = false;
  static __device__ __forceinline__ int slot(int place, int column) {
    return place * kCodeColumns + column % 8 / 2 * 32 + column / 8 * 2 + column % 2;
  }
  static __device__ __forceinline__ int places(int count) { return min(count, kPlaces); }
};
struct ColumnOrder {
  static constexpr bool kOutliersType = false;
  static __device__ __forceinline__ int slot(int place, int column) {
    return place * kCodeColumns + column;
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
inline constexpr int kLaneColumns = kCodeColumns / cuda::kWarp;
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

// Asks for the values of a row of the batch at the list's first places, up to number `count`.
__device__ __forceinline__ void touch_values(const OutlierList& listed, int count,
                                             const Outputs& outputs, int batch, std::int64_t m) {
  constexpr int kSectorBytes = 32;
  const auto step = static_cast<int>(kSectorBytes / linear::detail::element_bytes(listed.dtype));
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

// Barriers by name of a group's warps: see TileBarriers.
__device__ __forceinline__ TileBarriers barriers_of(int group) {
  return {3 + group, 5 + group, 7 + group};
}

// Warp number `warp` of those that pick takes the boxes of every kPickWarps-th stage, out of
// `boxes` from number `first` on, whose stages follow `before` others. A stage has one warp, which
// has seen each of its phases end. rows_of(stage): the weight's rows in a stage.
template <class Picks, class Ring, class RowsOf>
__device__ __forceinline__ void pick_boxes(const Picks& picker, const Ring& ring,
                                           std::uint32_t before, int first, int boxes, int warp,
                                           const RowsOf& rows_of, std::uint16_t* codes) {
  typename Ring::Cursor cursor(before);
#pragma unroll 1
  for (int box = 0; box < boxes; ++box, cursor.advance()) {
    if (cursor.stage % kPickWarps != warp) continue;
    ring.full[cursor.stage].wait(cursor.parity);
    picker.pick(first + box, rows_of(cursor.stage), codes);
    ring.release(cursor.stage);
  }
}

}  // namespace planq::linear_llm_int8::sm90
