// The list of outlier columns in the kernels for sm_90a, and how the weight's codes at these
// columns get to shared memory. Warps of their own bring the codes for the first kPlaces places of
// the list: they pick them from the stages that pass through the ring, or copy what a kernel before
// has gathered (gather.cu). If the list is longer, the warps that multiply gather the rest from
// global memory.
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

// The length of a list: `count`, as the operand says, but at least 0 and at most its capacity.
__device__ __forceinline__ int outlier_count(std::int64_t count, std::int32_t capacity) {
  const std::int64_t held = count < capacity ? count : capacity;
  return static_cast<int>(held < 0 ? 0 : held);
}

// What a gemm with outliers has beside its operands. Strides count elements.
struct OutlierList {
  const std::int32_t* index;
  const std::int64_t* count;
  const void* values;  // outlier values, by row and place
  std::int64_t row, batch;
  const std::int8_t* weight;
  std::int64_t weight_row;
  // The weight's codes by place and column, if a kernel before has gathered them. Null: they are
  // picked from the stages.
  const std::int8_t* codes;
  std::int64_t pitch;
  std::int32_t capacity, terms;
  DType dtype;
  bool vectors;  // four neighbouring values are an aligned vector

  __device__ __forceinline__ int size() const { return outlier_count(*count, capacity); }
};

inline constexpr int kPlaces = 64;  // of the list, whose codes are in shared memory at a time
inline constexpr int kCodeColumns = 128;
inline constexpr int kCodeBytes = kPlaces * kCodeColumns * 2;
// Outlier values in shared memory, for each warp of a few-rows kernel: so many rows at a time.
inline constexpr int kStagedRows = 8;
inline constexpr int kStagedBytes = kStagedRows * kPlaces * static_cast<int>(sizeof(float));

// Orders of codes in shared memory. They are as many as kPlaces places of 128 columns. These two
// orders are for fma: codes are bfloat16, which represents every int8 exactly. FragmentOrder has
// the columns of a place in the order in which wgmma gives sums to threads.
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
// Orders for the tensor cores have codes in the outliers' type, which has 16 bits like bfloat16.
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

// The columns at the list's first kPlaces places, two for each lane of a warp. The constructor
// loads them, whatever the count is, so that it waits for nothing.
class OutlierColumns {
 public:
  __device__ __forceinline__ explicit OutlierColumns(const OutlierList& outliers)
      : held_(*outliers.count), capacity_(outliers.capacity), terms_(outliers.terms) {
    const int lane = threadIdx.x % cuda::kWarp;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      read_[half] =
          capacity_ > 0 ? outliers.index[min(lane + half * cuda::kWarp, capacity_ - 1)] : -1;
  }
  // Of the whole list.
  __device__ __forceinline__ int count() const { return outlier_count(held_, capacity_); }
  // The column at this lane's place in a half of the first kPlaces places, or -1 if there is none.
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

// A lane has four of the 128 columns: every 32nd.
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

// Copies the codes of 128 columns, from column n on, that a kernel before has gathered. `warp`: the
// number of this warp.
template <class Order>
__device__ __forceinline__ void bring_codes(const OutlierList& outliers, int count, std::int64_t n,
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
        each[j][i] = from + j < count && column < outliers.pitch
                         ? outliers.codes[(from + j) * outliers.pitch + column]
                         : std::int8_t{0};
      }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (from + j < places) put_codes<Order>(codes, from + j, each[j], outliers.dtype);
  }
}

// Picks the codes of 128 columns at the list's first kPlaces places from stages of the weight.
template <class Order>
class Picker {
 public:
  __device__ __forceinline__ Picker(const OutlierList& outliers, const OutlierColumns& columns)
      : dtype_(outliers.dtype) {
    const int places = Order::places(columns.count());
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      column_[half] = columns.column(half);
      const int place = lane() + half * cuda::kWarp;
      missing_[half] = __ballot_sync(cuda::kAllLanes, place < places && column_[half] < 0);
    }
  }

  // Sets codes to 0 for places that name no column of the input, and for padding behind the last
  // place. `warp`: the number of this warp.
  __device__ __forceinline__ void clear(std::uint16_t* codes, int warp) const {
    const int none[kLaneColumns] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll 1
      for (int place = warp; place < cuda::kWarp; place += kPickWarps)
        if (missing_[half] >> place & 1) put(codes, half * cuda::kWarp + place, none);
  }
  // Picks the codes at outlier columns within a k block, of the 128 rows in its stage. Called by a
  // whole warp.
  __device__ __forceinline__ void pick(int k_block, const std::uint8_t* rows,
                                       std::uint16_t* codes) const {
    // The bytes of a row are where TMA's swizzle has put them, in units of 16.
    rows += lane() * cuda::kBoxBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned left = __ballot_sync(cuda::kAllLanes, column_[half] >> kKBlockBits == k_block);
#pragma unroll 1
      while (left != 0) {
        // Two places at a time. If their number is odd, the last one is picked twice.
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
    // All lanes have read before the warp releases the stage.
    __syncwarp();
  }

 private:
  static constexpr int kKBlockBits = 7;
  static_assert(1 << kKBlockBits == cuda::kBoxBytes);

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

// Gathers the codes of 128 columns, from column n on, from global memory: places `first` to first +
// count - 1 of the list, and zeros behind them up to `places` places, which is a multiple of four.
// Called by 128 threads.
template <class Order>
__device__ __forceinline__ void gather_codes(const OutlierList& outliers, int first, int count,
                                             int places, std::int64_t n, std::int64_t columns,
                                             int thread, std::uint16_t* codes) {
  constexpr int kAtOnce = 4;
  const bool inside = n + thread < columns;
  const std::int8_t* row = outliers.weight + (inside ? n + thread : 0) * outliers.weight_row;
#pragma unroll 1
  for (int place = 0; place < places; place += kAtOnce) {
    std::int8_t held[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int term = place + i < count ? outliers.index[first + place + i] : -1;
      held[i] = inside && term >= 0 && term < outliers.terms ? row[term] : std::int8_t{0};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      codes[Order::slot(place + i, thread)] = code_bits<Order>(held[i], outliers.dtype);
  }
}

// Prefetches the values of a row at the list's first places, up to `count` of them.
__device__ __forceinline__ void touch_values(const OutlierList& outliers, int count,
                                             const Outputs& outputs, int batch, std::int64_t m) {
  constexpr int kSectorBytes = 32;
  const auto step = static_cast<int>(kSectorBytes / linear::detail::element_bytes(outliers.dtype));
  if (m >= outputs.rows) return;
#pragma unroll 1
  for (int place = 0; place < min(count, kPlaces); place += step)
    touch_element(outliers.values, batch * outliers.batch + m * outliers.row + place,
                  outliers.dtype);
}

// Named barriers of the four warps that compute a tile. `own`: these warps alone. `free`: with the
// warps that bring codes, when the codes' shared memory is free. `full`: with them, when it is
// full.
struct TileBarriers {
  int own, free, full;
};
inline constexpr int kPickThreads = (4 + kPickWarps) * cuda::kWarp;

// A block's tile in few-rows kernels: its gemm of the batch, and its first column of the output.
struct SharePlace {
  int batch;
  std::int64_t n;
};

// Gathers places from `first` on, for the block's 128 columns, over those that were there. Called
// by the 128 threads that multiply.
template <class Order>
__device__ __forceinline__ void gather_share(const OutlierList& outliers, int first, int held,
                                             std::int64_t n, std::int64_t columns,
                                             std::uint16_t* codes) {
  constexpr int kThreads = 128, kBarrier = 1;
  cuda::named_barrier_wait(kBarrier, kThreads);
  gather_codes<Order>(outliers, first, held, Order::places(held), n, columns,
                      static_cast<int>(threadIdx.x), codes);
  cuda::named_barrier_wait(kBarrier, kThreads);
}

// Calls body(T{}), where T is the outliers' type, which has 16 bits.
template <class Body>
__device__ __forceinline__ void with_values(DType dtype, const Body& body) {
  if (dtype == DType::Float16)
    body(math::Half{});
  else
    body(math::Bfloat16{});
}

// The same for outliers of any type.
template <class Body>
__device__ __forceinline__ void with_any_values(DType dtype, const Body& body) {
  if (dtype == DType::Float32)
    body(float{});
  else
    with_values(dtype, body);
}

// The barriers of a group's tiles.
__device__ __forceinline__ TileBarriers barriers_of(int group) {
  return {3 + group, 5 + group, 7 + group};
}

// Has warp `warp` pick codes from every kPickWarps-th stage, so that a stage always has the same
// warp, which sees each of its phases end. `k_blocks`: how many, from k block `first` on. `before`:
// how many stages the ring had before. rows_of(stage): where the weight's rows in a stage are.
template <class Picks, class Ring, class RowsOf>
__device__ __forceinline__ void pick_k_blocks(const Picks& picker, const Ring& ring,
                                              std::uint32_t before, int first, int k_blocks,
                                              int warp, const RowsOf& rows_of,
                                              std::uint16_t* codes) {
  typename Ring::Cursor cursor(before);
#pragma unroll 1
  for (int k_block = 0; k_block < k_blocks; ++k_block, cursor.advance()) {
    if (cursor.stage % kPickWarps != warp) continue;
    ring.full[cursor.stage].wait(cursor.parity);
    picker.pick(first + k_block, rows_of(cursor.stage), codes);
    ring.release(cursor.stage);
  }
}

}  // namespace planq::linear_llm_int8::sm90
