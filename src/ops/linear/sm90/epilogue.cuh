// The epilogue of the kernels for sm_90a, from sums in shared memory to outputs. A warp walks down
// rows; each lane has four neighbouring columns in all of them. So a lane loads what belongs to its
// columns once. What belongs to a row is loaded by one lane and passed to the others by shuffles.
#pragma once

#include <cstdint>

#include "ops/linear/epilogue.cuh"

namespace planq::linear::sm90 {

struct Outputs {
  Epilogue epilogue;
  std::uint8_t* data;
  std::int64_t row_stride;
  std::int64_t rows, columns;
  DType dtype;
  bool vectors, residual_vectors;  // four neighbours are aligned to be one vector
  // All columns are such vectors, and the epilogue has scales, zero points and a bias at most.
  bool plain;
  // From a gemm of the batch to the next, in elements.
  std::int64_t batch_stride, residual_batch, scale_batch, zero_point_batch, sum_batch, bias_batch,
      weight_scale_batch;
};

// The rows that a warp walks down, `count` of them. `sums`: the lane's four sums of row number 0,
// and `pitch` sums further those of the next row. Row number i is row m + i * step of the output.
// `n`: the lane's first column. Lane `lane + i` has what belongs to row number i.
struct RowWalk {
  const int* sums;
  int pitch, count, lane;
  std::int64_t m, step, n;

  __device__ __forceinline__ int4 sums_of(int i) const {
    return *reinterpret_cast<const int4*>(sums + i * pitch);
  }
  // Loads rows number i and on. Rows beyond the last are the last one again.
  template <int kRows>
  __device__ __forceinline__ void load(int i, int4 (&rows)[kRows]) const {
#pragma unroll
    for (int j = 0; j < kRows; ++j) rows[j] = sums_of(min(i + j, count - 1));
  }
};

class IntegerOutputs {
 public:
  struct Row {};
  struct Columns {};

  __device__ __forceinline__ IntegerOutputs(const Outputs& outputs, int batch)
      : outputs_(outputs),
        data_(reinterpret_cast<std::int32_t*>(outputs.data) + batch * outputs.batch_stride) {}

  __device__ __forceinline__ Row row(std::int64_t) const { return {}; }
  __device__ __forceinline__ Columns columns(std::int64_t) const { return {}; }

  __device__ __forceinline__ void finish(const RowWalk& walk, Row, const Columns&) const {
    const auto left = static_cast<int>(min(outputs_.columns - walk.n, std::int64_t{4}));
    std::int32_t* to = data_ + walk.m * outputs_.row_stride + walk.n;
    const std::int64_t step = walk.step * outputs_.row_stride;
    if (left <= 0) return;
    if (outputs_.plain) {
      constexpr int kRowsAtOnce = 8;
#pragma unroll 1
      for (int i = 0; i < walk.count; i += kRowsAtOnce) {
        int4 sums[kRowsAtOnce];
        walk.load(i, sums);
#pragma unroll
        for (int j = 0; j < kRowsAtOnce; ++j, to += step)
          if (i + j < walk.count) four_of(sums[j]).store(to);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < walk.count; ++i, to += step)
        store_four(to, four_of(walk.sums_of(i)), left, outputs_.vectors);
    }
  }

 private:
  static __device__ __forceinline__ Four<std::int32_t> four_of(const int4& sums) {
    Four<std::int32_t> four;
    memcpy(&four, &sums, sizeof four);
    return four;
  }

  const Outputs& outputs_;
  std::int32_t* data_;
};

// What the sums in shared memory are: integers, or the bits of float32.
enum class SumsAre {
  Integers,
  Scaled,    // float32, with the scales of their rows and with their addend
  Unscaled,  // float32: there are no scales, or slices have met them already
};

// Stores outputs of any floating type, whose compute type is C.
template <class C, SumsAre kSums = SumsAre::Integers>
class ScaledOutputs {
 public:
  using Row = RowTerm<C>;
  struct Columns {
    ColumnTerm<C> each[4];
  };

  __device__ __forceinline__ ScaledOutputs(const Outputs& outputs, int batch)
      : outputs_(outputs),
        epilogue_(outputs.epilogue),
        data_(outputs.data +
              batch * outputs.batch_stride * linear::detail::element_bytes(outputs.dtype)) {
    const auto scale = batch * outputs.scale_batch, residual = batch * outputs.residual_batch;
    epilogue_.input_scale = linear::detail::moved(
        epilogue_.input_scale, scale * linear::detail::element_bytes(epilogue_.scale_dtype));
    epilogue_.residual = linear::detail::moved(
        epilogue_.residual, residual * linear::detail::element_bytes(epilogue_.residual_dtype));
    epilogue_.bias = linear::detail::moved(
        epilogue_.bias,
        batch * outputs.bias_batch * linear::detail::element_bytes(epilogue_.bias_dtype));
    epilogue_.weight_scale = linear::detail::moved(
        epilogue_.weight_scale,
        batch * outputs.weight_scale_batch * linear::detail::element_bytes(epilogue_.scale_dtype));
    if (epilogue_.input_zero_point) epilogue_.input_zero_point += batch * outputs.zero_point_batch;
    if (epilogue_.input_sum) epilogue_.input_sum += batch * outputs.sum_batch;
  }

  // What belongs to a row or to four columns. Those beyond the last are the last one again.
  __device__ __forceinline__ Row row(std::int64_t m) const {
    if constexpr (kSums == SumsAre::Unscaled) return {};
    return row_term<C>(epilogue_, min(m, outputs_.rows - 1));
  }
  __device__ __forceinline__ Columns columns(std::int64_t n) const {
    const Epilogue& e = epilogue_;
    std::int64_t at[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) at[i] = min(n + i, outputs_.columns - 1);
    C scales[4] = {}, biases[4] = {};
    std::int32_t zeros[4] = {}, sums[4] = {};
    if constexpr (kSums != SumsAre::Unscaled)
      load_terms(e.weight_scale, e.scale_dtype, at, e.weight_step, scales);
    if (e.bias) load_terms(e.bias, e.bias_dtype, at, 1, biases);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (e.weight_zero_point) zeros[i] = e.weight_zero_point[at[i] * e.weight_step];
      if (e.weight_sum) sums[i] = e.weight_sum[at[i]];
    }
    Columns columns;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      columns.each[i] = column_term<C>(e, scales[i], biases[i], zeros[i], sums[i]);
    return columns;
  }
  // Called by the whole warp.
  __device__ __forceinline__ void finish(const RowWalk& walk, const Row& own,
                                         const Columns& columns) const {
    if (!outputs_.plain || !finish_plain(walk, own, columns)) finish_any(walk, own, columns);
  }

 private:
  // Rounds four outputs to their type and stores them.
  __device__ __forceinline__ void put(std::int64_t at, const C (&y)[4], int count) const {
    const bool vectors = outputs_.vectors;
    if constexpr (sizeof(C) == 8)
      store_narrowed<double>(data_, at, y, count, vectors);
    else if (outputs_.dtype == DType::Float32)
      store_narrowed<float>(data_, at, y, count, vectors);
    else if (outputs_.dtype == DType::Float16)
      store_narrowed<math::Half>(data_, at, y, count, vectors);
    else
      store_narrowed<math::Bfloat16>(data_, at, y, count, vectors);
  }

  static __device__ __forceinline__ void load_terms(const void* from, DType dtype,
                                                    const std::int64_t (&at)[4], std::int64_t step,
                                                    C (&values)[4]) {
    const auto load = [&]<class T>(T) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[i] = static_cast<C>(math::widen(static_cast<const T*>(from)[at[i] * step]));
    };
    with_float(dtype, load);
  }

  __device__ __forceinline__ bool is_shifted() const {
    if constexpr (kSums != SumsAre::Integers) return false;
    return epilogue_.input_zero_point || epilogue_.weight_zero_point;
  }
  // What belongs to a row, from the lane that has it.
  template <bool kShifted>
  static __device__ __forceinline__ Row row_of(const Row& own, int lane) {
    if constexpr (kSums != SumsAre::Integers) return own;  // no row term is left
    Row row{__shfl_sync(cuda::kAllLanes, own.scale, lane), 0, 0};
    if constexpr (kShifted) {
      row.zero_point = __shfl_sync(cuda::kAllLanes, own.zero_point, lane);
      row.sum = __shfl_sync(cuda::kAllLanes, own.sum, lane);
    }
    return row;
  }

  // The epilogue if outputs_.plain: a short loop, which takes several rows at a time. Returns false
  // if it has stored a NaN that is not the canonical one; finish_any() then stores all again.
  __device__ __forceinline__ bool finish_plain(const RowWalk& walk, const Row& own,
                                               const Columns& columns) const {
    if constexpr (sizeof(C) == 8)
      return finish_plain<double>(walk, own, columns);
    else if (outputs_.dtype == DType::Float32)
      return finish_plain<float>(walk, own, columns);
    else if (outputs_.dtype == DType::Float16)
      return finish_plain<math::Half>(walk, own, columns);
    else
      return finish_plain<math::Bfloat16>(walk, own, columns);
  }
  template <class T>
  __device__ __forceinline__ bool finish_plain(const RowWalk& walk, const Row& own,
                                               const Columns& columns) const {
    return is_shifted() ? finish_plain<T, true>(walk, own, columns)
                        : finish_plain<T, false>(walk, own, columns);
  }
  template <class T, bool kShifted>
  __device__ __forceinline__ bool finish_plain(const RowWalk& walk, const Row& own,
                                               const Columns& columns) const {
    constexpr int kRowsAtOnce = sizeof(T) == 8 ? 1 : kShifted ? 2 : 4;
    T* to = reinterpret_cast<T*>(data_) + walk.m * outputs_.row_stride + walk.n;
    const std::int64_t step = walk.step * outputs_.row_stride;
    const bool inside = walk.n < outputs_.columns;
    bool found_nan = false;
#pragma unroll 1
    for (int i = 0; i < walk.count; i += kRowsAtOnce) {
      int4 sums[kRowsAtOnce];
      walk.load(i, sums);
#pragma unroll
      for (int j = 0; j < kRowsAtOnce; ++j, to += step) {
        const Row row = row_of<kShifted>(own, walk.lane + i + j);
        C y[4];
        finish_numbers<kShifted>(sums[j], row, columns, y);
        const Four<T> four = narrow_numbers<T>(y);
        if (inside && i + j < walk.count) four.store(to);
        found_nan |= cuda::any_nan(y);
      }
    }
    return !__any_sync(cuda::kAllLanes, found_nan);
  }

  template <bool kShifted>
  __device__ __forceinline__ void finish_numbers(const int4& sums, const Row& row,
                                                 const Columns& columns, C (&y)[4]) const {
    const bool has_bias = epilogue_.bias != nullptr;
    std::int32_t each[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kSums == SumsAre::Scaled) {
        y[i] = scaled_listed(__int_as_float(each[i]), columns.each[i], has_bias);
      } else if constexpr (kSums == SumsAre::Unscaled) {
        const float t = __int_as_float(each[i]);
        y[i] = has_bias ? t + columns.each[i].bias : t;
      } else {
        if (kShifted) each[i] = without_zero_points(each[i], row, columns.each[i]);
        y[i] = scaled<Convention::Planq>(each[i], row, columns.each[i], has_bias);
      }
    }
  }

  __device__ __forceinline__ void finish_any(const RowWalk& walk, const Row& own,
                                             const Columns& columns) const {
    const auto left = static_cast<int>(min(outputs_.columns - walk.n, std::int64_t{4}));
#pragma unroll 1
    for (int i = 0; i < walk.count; ++i) {
      const Row row = row_of<true>(own, walk.lane + i);
      if (left > 0) finish_row(walk.m + i * walk.step, walk.n, left, walk.sums_of(i), row, columns);
    }
  }
  __device__ __forceinline__ void finish_row(std::int64_t m, std::int64_t n, int count,
                                             const int4& sums, const Row& row,
                                             const Columns& columns) const {
    C y[4], residual[4] = {};
    if (epilogue_.residual) load_residual(m, n, count, residual);
    if constexpr (kSums != SumsAre::Integers) {
      const std::int32_t each[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float t = __int_as_float(each[i]);
        y[i] = kSums == SumsAre::Scaled
                   ? finish_listed(t, columns.each[i], epilogue_, residual[i])
                   : with_addends(t, columns.each[i].bias, residual[i], epilogue_);
      }
      return put(m * outputs_.row_stride + n, y, count);
    }
    switch (epilogue_.convention) {
      case Convention::BitsAndBytes:
        finish_four<Convention::BitsAndBytes>(sums, row, columns, residual, y);
        break;
      case Convention::Baracuda:
        finish_four<Convention::Baracuda>(sums, row, columns, residual, y);
        break;
      default:
        finish_four<Convention::Planq>(sums, row, columns, residual, y);
    }
    put(m * outputs_.row_stride + n, y, count);
  }

  template <Convention kConvention>
  __device__ __forceinline__ void finish_four(const int4& sums, const Row& row,
                                              const Columns& columns, const C (&residual)[4],
                                              C (&y)[4]) const {
    const std::int32_t each[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      y[i] = linear::finish<kConvention>(each[i], row, columns.each[i], epilogue_, residual[i]);
  }

  __device__ __forceinline__ void load_residual(std::int64_t m, std::int64_t n, int count,
                                                C (&residual)[4]) const {
    const std::int64_t at = m * epilogue_.residual_row + n;
    const bool vectors = outputs_.residual_vectors;
    with_float(epilogue_.residual_dtype,
               [&]<class T>(T) { load_four<T>(epilogue_.residual, at, count, vectors, residual); });
  }

  const Outputs& outputs_;
  Epilogue epilogue_;
  std::uint8_t* data_;
};

// Prefetches what the epilogue reads for a row and for four columns.
__device__ __forceinline__ void touch_element(const void* first, std::int64_t index, DType dtype) {
  if (!first) return;
  const auto* at =
      static_cast<const std::uint8_t*>(first) + index * linear::detail::element_bytes(dtype);
  asm volatile("prefetch.global.L1 [%0];" ::"l"(at));
}
__device__ __forceinline__ void touch(const Outputs& outputs, int batch, std::int64_t m,
                                      std::int64_t n) {
  const Epilogue& e = outputs.epilogue;
  if (!e.input_scale) return;
  m = min(m, outputs.rows - 1);
  n = min(n, outputs.columns - 1);
  touch_element(e.input_scale, batch * outputs.scale_batch + m * e.input_scale_row, e.scale_dtype);
  touch_element(e.input_zero_point, batch * outputs.zero_point_batch + m * e.input_zero_point_row,
                DType::Int32);
  touch_element(e.input_sum, batch * outputs.sum_batch + m * e.input_sum_row, DType::Int32);
  touch_element(e.weight_scale, n * e.weight_step, e.scale_dtype);
  touch_element(e.weight_zero_point, n * e.weight_step, DType::Int32);
  touch_element(e.weight_sum, n, DType::Int32);
  touch_element(e.bias, n, e.bias_dtype);
}

// Calls body(out), where `out` finishes the sums of a gemm of the batch.
template <class Body>
__device__ __forceinline__ void with_outputs(const Outputs& outputs, int batch, const Body& body) {
  switch (outputs.dtype) {
    case DType::Int32:
      return body(IntegerOutputs(outputs, batch));
    case DType::Float64:
      return body(ScaledOutputs<double>(outputs, batch));
    default:
      return body(ScaledOutputs<float>(outputs, batch));
  }
}

}  // namespace planq::linear::sm90
