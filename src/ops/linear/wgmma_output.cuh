// From four neighbouring sums to four outputs of a product, for lanes of a warp that walk down the
// rows: what belongs to a column stays in the lane, what belongs to a row comes from another lane.
#pragma once

#include <cstdint>

#include "ops/linear/listed.cuh"
#include "ops/linear/tile_output.cuh"

namespace planq::linear::wgmma {

struct Outputs {
  Epilogue epilogue;
  std::uint8_t* data;
  std::int64_t row_stride;
  std::int64_t rows, columns;
  DType dtype;
  bool vectors, residual_vectors;  // four neighbours are aligned to their size
  // All columns are vectors, under scales, zero points and a bias at most: what is worth a loop of
  // its own.
  bool plain;
  // From a product of the batch to the next, in elements.
  std::int64_t batch_stride, residual_batch, scale_batch, zero_point_batch, sum_batch;
  std::int64_t outlier_batch;
};

// Four elements at once; 8-byte ones as two vectors.
template <class T>
struct alignas(sizeof(T) == 2 ? 8 : 16) Four {
  T each[4];
};

template <class T, class C>
__device__ __forceinline__ void load_four(const void* from, std::int64_t at, int count,
                                          bool vectors, C (&values)[4]) {
  const T* first = static_cast<const T*>(from) + at;
  Four<T> four{};
  if (vectors && count >= 4) {
    four = *reinterpret_cast<const Four<T>*>(first);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < count) four.each[i] = first[i];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) values[i] = static_cast<C>(math::widen(four.each[i]));
}

// Calls body(an element) of a type of floats.
template <class Body>
__device__ __forceinline__ void with_float(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::Float16:
      return body(math::Half{});
    case DType::BFloat16:
      return body(math::Bfloat16{});
    case DType::Float32:
      return body(float{});
    default:
      return body(double{});
  }
}

class IntegerOutputs {
 public:
  struct Row {};
  struct Columns {};
  static constexpr int kRowsAtOnce = 8;

  __device__ __forceinline__ IntegerOutputs(const Outputs& outputs, int batch)
      : outputs_(outputs),
        data_(reinterpret_cast<std::int32_t*>(outputs.data) + batch * outputs.batch_stride) {}

  __device__ __forceinline__ bool plain() const { return outputs_.plain; }
  __device__ __forceinline__ Row row(std::int64_t) const { return {}; }
  __device__ __forceinline__ Row row_of(Row, int) const { return {}; }
  __device__ __forceinline__ Columns columns(std::int64_t) const { return {}; }
  template <bool kPlain>
  __device__ __forceinline__ void store(std::int64_t m, std::int64_t n, const int4& sums, Row,
                                        const Columns&) const {
    const auto count = static_cast<int>(min(outputs_.columns - n, std::int64_t{4}));
    if (count <= 0) return;
    const std::int32_t each[4] = {sums.x, sums.y, sums.z, sums.w};
    store_four(data_ + m * outputs_.row_stride + n, each, kPlain ? 4 : count,
               kPlain || outputs_.vectors);
  }

 private:
  const Outputs& outputs_;
  std::int32_t* data_;
};

// C: the compute type; of its outputs, the type is chosen at each.
template <class C>
class ScaledOutputs {
 public:
  using Compute = C;
  using Row = RowTerm<C>;
  struct Columns {
    ColumnTerm<C> each[4];
  };
  static constexpr int kRowsAtOnce = sizeof(C) == 8 ? 1 : 4;  // that are under way together

  __device__ __forceinline__ ScaledOutputs(const Outputs& outputs, int batch)
      : outputs_(outputs),
        epilogue_(outputs.epilogue),
        data_(outputs.data + batch * outputs.batch_stride * detail::element_bytes(outputs.dtype)) {
    const auto scale = batch * outputs.scale_batch, residual = batch * outputs.residual_batch;
    epilogue_.input_scale =
        detail::moved(epilogue_.input_scale, scale * detail::element_bytes(epilogue_.scale_dtype));
    epilogue_.residual = detail::moved(epilogue_.residual,
                                       residual * detail::element_bytes(epilogue_.residual_dtype));
    if (epilogue_.input_zero_point) epilogue_.input_zero_point += batch * outputs.zero_point_batch;
    if (epilogue_.input_sum) epilogue_.input_sum += batch * outputs.sum_batch;
    if (!has_outliers()) return;
    epilogue_.outliers.values = detail::moved(
        epilogue_.outliers.values, batch * outputs.outlier_batch * static_cast<int>(sizeof(C)));
    cuda::wait_for_previous();
  }
  __device__ __forceinline__ bool has_outliers() const {
    return epilogue_.outliers.values != nullptr;
  }

  __device__ __forceinline__ bool plain() const { return outputs_.plain; }
  // Of a row and of four columns; those outside are the last one's.
  __device__ __forceinline__ Row row(std::int64_t m) const {
    return row_term<C>(epilogue_, min(m, outputs_.rows - 1));
  }
  __device__ __forceinline__ Columns columns(std::int64_t n) const {
    const Epilogue& e = epilogue_;
    std::int64_t at[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) at[i] = min(n + i, outputs_.columns - 1);
    C scales[4], biases[4] = {};
    std::int32_t zeros[4] = {}, sums[4] = {};
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
  // That of another lane, by the whole warp.
  __device__ __forceinline__ Row row_of(const Row& row, int lane) const {
    Row other{__shfl_sync(cuda::kAllLanes, row.scale, lane), 0, 0};
    if (epilogue_.input_zero_point || epilogue_.weight_zero_point) {
      other.zero_point = __shfl_sync(cuda::kAllLanes, row.zero_point, lane);
      other.sum = __shfl_sync(cuda::kAllLanes, row.sum, lane);
    }
    return other;
  }

  template <bool kPlain>
  __device__ __forceinline__ void store(std::int64_t m, std::int64_t n, const int4& sums,
                                        const Row& row, const Columns& columns) const {
    const auto count = static_cast<int>(min(outputs_.columns - n, std::int64_t{4}));
    if (count <= 0) return;
    C y[4], residual[4] = {};
    if constexpr (kPlain) {
      finish_four<Convention::Planq>(sums, row, columns, residual, y);
    } else {
      if (epilogue_.residual) load_residual(m, n, count, residual);
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
    }
    put(m * outputs_.row_stride + n, y, kPlain ? 4 : count, kPlain || outputs_.vectors);
  }

  // Sums of rows m, m + step, ... with their outliers, `live` of them; rows outside are not stored.
  template <int kRows>
  __device__ __forceinline__ void store_listed(std::int64_t m, int step, int live, std::int64_t n,
                                               const int4 (&sums)[kRows], const C (&scales)[kRows],
                                               const Columns& columns) const {
    const auto count = static_cast<int>(min(outputs_.columns - n, std::int64_t{4}));
    if (count <= 0) return;
    C t[kRows][4];
    std::int64_t rows[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int32_t each[4] = {sums[r].x, sums[r].y, sums[r].z, sums[r].w};
      rows[r] = min(m + r * step, outputs_.rows - 1);
#pragma unroll
      for (int i = 0; i < 4; ++i) t[r][i] = static_cast<C>(each[i]) * scales[r];
    }
    add_listed<C>(epilogue_.outliers, rows, n, t);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= live || m + r * step >= outputs_.rows) break;
      C residual[4] = {};
      if (epilogue_.residual) load_residual(rows[r], n, count, residual);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        t[r][i] = finish_listed(t[r][i], columns.each[i], epilogue_, residual[i]);
      put(rows[r] * outputs_.row_stride + n, t[r], count, outputs_.vectors);
    }
  }

 private:
  // Four outputs, in their type.
  __device__ __forceinline__ void put(std::int64_t at, const C (&y)[4], int count,
                                      bool vectors) const {
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

  template <Convention kConvention>
  __device__ __forceinline__ void finish_four(const int4& sums, const Row& row,
                                              const Columns& columns, const C (&residual)[4],
                                              C (&y)[4]) const {
    const std::int32_t each[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      y[i] = finish<kConvention>(each[i], row, columns.each[i], epilogue_, residual[i]);
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

// Stores `count` rows, m, m + step, ..., if they have outliers; false: they have none. Several rows
// at a time, so that a code of the weight is read for all of them; more would not fit in the
// registers. `sums_of` and `row_of` are of the number of a row among them.
template <class Out, class SumsOf, class RowOf>
__device__ __forceinline__ bool store_listed_rows(const Out& out, int count, std::int64_t m,
                                                  int step, std::int64_t n,
                                                  const typename Out::Columns& columns,
                                                  const SumsOf& sums_of, const RowOf& row_of) {
  if constexpr (requires { out.has_outliers(); }) {
    if (!out.has_outliers()) return false;
    constexpr int kRows = sizeof(typename Out::Compute) == 4 ? 2 : 1;
#pragma unroll 1
    for (int i = 0; i < count; i += kRows) {
      int4 sums[kRows];
      typename Out::Compute scales[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums[r] = sums_of(min(i + r, count - 1));
        scales[r] = row_of(min(i + r, count - 1)).scale;
      }
      out.store_listed(m + std::int64_t{i} * step, step, count - i, n, sums, scales, columns);
    }
    return true;
  } else {
    return false;
  }
}

// Calls body<plain>(0), body<plain>(1), ... of `count` rows.
template <class Out, class Body>
__device__ __forceinline__ void for_rows(const Out& out, int count, const Body& body) {
  if (out.plain()) {
#pragma unroll Out::kRowsAtOnce
    for (int i = 0; i < count; ++i) body.template operator()<true>(i);
  } else {
#pragma unroll 1
    for (int i = 0; i < count; ++i) body.template operator()<false>(i);
  }
}

// Asks for what belongs to a row and to four columns, so that it is in the cache nearby when the
// sums are complete.
__device__ __forceinline__ void touch_element(const void* first, std::int64_t index, DType dtype) {
  if (!first) return;
  const auto* at = static_cast<const std::uint8_t*>(first) + index * detail::element_bytes(dtype);
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

// Calls body with what finishes the sums of a product of the batch.
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

}  // namespace planq::linear::wgmma
