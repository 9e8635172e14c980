// What the epilogues of all engines share: four neighbouring outputs, which are loaded, rounded and
// stored together, and the scale, bias and residual that floating sums meet. How sums get to a
// thread is each engine's own matter: see epilogue.cuh in simt, sm80 and sm90.
#pragma once

#include <cstdint>

#include "cuda/memory_access.cuh"
#include "math/formats.h"
#include "ops/affine/affine.cuh"
#include "ops/linear/gemm.h"

namespace planq::linear {

// --- Four neighbours -----------------------------------------------------------------------------

// Four neighbouring outputs, as one vector, or as two where numbers have 8 bytes. They are vectors
// of CUDA, since the compiler would move the words of a structure one by one.
template <class T>
struct Four {
  static constexpr int kParts = sizeof(T) == 8 ? 2 : 1;
  using Part = cuda::VectorOf<T, 4 / kParts>;
  Part parts[kParts];

  __device__ __forceinline__ void store(T* to) const {
    if constexpr (sizeof(Part) == cuda::kVectorBytes) {
#pragma unroll
      for (int i = 0; i < kParts; ++i) cuda::store_kept(reinterpret_cast<Part*>(to) + i, parts[i]);
    } else {
      *reinterpret_cast<Part*>(to) = parts[0];
    }
  }
};

// Stores the first `count` of four outputs. `vector`: the address is aligned for one store.
template <class T>
__device__ __forceinline__ void store_four(T* to, const Four<T>& four, int count, bool vector) {
  if (vector && count >= 4) return four.store(to);
  T each[4];
  memcpy(each, &four, sizeof each);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (i < count) to[i] = each[i];
}

// Rounds four numbers to T. narrow_numbers() rounds as math::narrow() does, except that it gives
// another NaN. narrow_four() gives the canonical NaN.
template <class T>
__device__ __forceinline__ Four<T> narrow_numbers(const math::Compute<T> (&values)[4]) {
  static_assert(sizeof(Four<T>) == 4 * sizeof(T));
  Four<T> four;
  if constexpr (sizeof(T) == 2)
    four.parts[0] = cuda::narrow_vector<T>(values);
  else
    memcpy(&four, values, sizeof four);
  return four;
}
template <class T>
__device__ __forceinline__ Four<T> narrow_four(const math::Compute<T> (&values)[4]) {
  Four<T> four = narrow_numbers<T>(values);
  if (!cuda::any_nan(values)) return four;
  T each[4];
  memcpy(each, &four, sizeof each);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (math::is_nan(values[i])) each[i] = math::narrow<T>(math::canonical_nan<math::Compute<T>>());
  memcpy(&four, each, sizeof each);
  return four;
}
template <class T>
__device__ __forceinline__ void store_narrowed(void* output, std::int64_t at,
                                               const math::Compute<T> (&values)[4], int count,
                                               bool vector) {
  store_four(static_cast<T*>(output) + at, narrow_four<T>(values), count, vector);
}

template <class T, class C>
__device__ __forceinline__ void load_four(const void* from, std::int64_t at, int count,
                                          bool vectors, C (&values)[4]) {
  const T* first = static_cast<const T*>(from) + at;
  T four[4] = {};
  if (vectors && count >= 4) {
    const auto whole = *reinterpret_cast<const Four<T>*>(first);
    memcpy(four, &whole, sizeof four);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < count) four[i] = first[i];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) values[i] = static_cast<C>(math::widen(four[i]));
}

// Calls body(T{}), where T is the C++ type of a floating dtype.
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

// Rounds four neighbouring outputs of a row from the compute type C to the output's type, and
// stores the first `count`.
template <class C>
__device__ __forceinline__ void store_values(const Gemm& gemm, std::int64_t at,
                                             const C (&values)[4], int count, bool vectors) {
  if constexpr (sizeof(C) == 8)
    return store_narrowed<double>(gemm.output, at, values, count, vectors);
  else if (gemm.output_dtype == DType::Float16)
    return store_narrowed<math::Half>(gemm.output, at, values, count, vectors);
  else if (gemm.output_dtype == DType::BFloat16)
    return store_narrowed<math::Bfloat16>(gemm.output, at, values, count, vectors);
  else
    return store_narrowed<float>(gemm.output, at, values, count, vectors);
}

// --- What floating sums meet ---------------------------------------------------------------------

// The scale that multiplies a sum. It is 1, which changes nothing, if there are no scales, or if
// the slices of the sum have met their blocks' scales already.
__device__ __forceinline__ float scale_at(const Gemm& gemm, const void* scales, std::int64_t at) {
  if (!scales || gemm.joins_by_scales) return 1.0f;
  return math::load_scale<float>(scales, at, gemm.epilogue.scale_dtype);
}
__device__ __forceinline__ float row_scale(const Gemm& gemm, std::int64_t row) {
  const Epilogue& e = gemm.epilogue;
  return scale_at(gemm, e.input_scale, row * e.input_scale_row);
}

// What all outputs of a column share.
struct FloatColumn {
  float scale, bias;

  FloatColumn() = default;
  __device__ __forceinline__ FloatColumn(const Gemm& gemm, std::int64_t column) {
    const Epilogue& e = gemm.epilogue;
    scale = scale_at(gemm, e.weight_scale, column * e.weight_step);
    bias = e.bias ? math::load_scale<float>(e.bias, column, e.bias_dtype) : 0.0f;
  }
};

// An output before it is rounded.
__device__ __forceinline__ float finished(const Gemm& gemm, std::int64_t row, std::int64_t column,
                                          float sum, float of_row, const FloatColumn& of_column) {
  const Epilogue& e = gemm.epilogue;
  return with_addends(sum * of_row * of_column.scale, of_column.bias,
                      residual_at<float>(e, row, column), e);
}

}  // namespace planq::linear
