// What the kernels of linear_gguf share: from blocks and codes to the steps of a chain, and four
// neighbouring outputs.
#pragma once

#include <cstdint>

#include "cuda/mma.cuh"
#include "ops/gguf/linear_gguf/fragments.cuh"
#include "ops/linear/epilogue.cuh"

namespace planq::linear_gguf {

using linear::Gemm;
using std::int64_t;

__device__ __forceinline__ int own_lane() { return static_cast<int>(threadIdx.x % cuda::kWarp); }
__device__ __forceinline__ int own_warp() { return static_cast<int>(threadIdx.x / cuda::kWarp); }

// The first byte of a row of a tile. Rows behind the last are the last one again.
__device__ __forceinline__ const std::uint8_t* row_of(const Gemm& gemm, int tile, int row) {
  const int64_t own = min(int64_t{tile} * 16 + row, gemm.n - 1);
  return gemm.weight.data + own * gemm.weight.row_stride;
}

// Behind the last byte of a weight, whose rows may also go backwards.
PLANQ_HD const std::uint8_t* end_of_weight(const std::uint8_t* first, int64_t rows,
                                           int64_t row_stride, int64_t row_bytes) {
  const int64_t highest = row_stride > 0 ? (rows - 1) * row_stride : 0;
  return first + highest + row_bytes;
}
// Bytes from `from` to the end of its weight; of many, a part.
__device__ __forceinline__ int room_in_weight(const std::uint8_t* from, const std::uint8_t* end) {
  return static_cast<int>(min(int64_t{end - from}, int64_t{1} << 30));
}
// Begins to copy an aligned vector of a weight to shared memory. What is behind the weight, of
// which there are `room` bytes, is not read: it would be in the same 16 bytes and do no harm, but
// tools that watch memory would find it.
__device__ __forceinline__ void copy_weight_vector(cuda::SharedAddress to, const std::uint8_t* from,
                                                   int room) {
  if (room >= 16) return cuda::copy_async(to, from);
#pragma unroll 1
  for (int i = 0; i < room; ++i)
    cuda::store_shared_byte(to + static_cast<cuda::SharedAddress>(i), __ldg(from + i));
}

// What the gemm of a batch has of its own. In shared memory, because few lines read it.
struct Moved {
  const std::uint8_t* input;
  const float* input_scale;
  std::uint8_t* output;
  const void* residual;

  __device__ __forceinline__ void find(const Gemm& gemm, int64_t index) {
    const Gemm own = gemm.at(index);
    input = own.input.data;
    input_scale = static_cast<const float*>(own.epilogue.input_scale);
    output = own.output;
    residual = own.epilogue.residual;
  }
};

// --- Four floats ---------------------------------------------------------------------------------

__device__ __forceinline__ void load_four_floats(const float* from, float (&four)[4]) {
  const float4 vector = *reinterpret_cast<const float4*>(from);
  four[0] = vector.x;
  four[1] = vector.y;
  four[2] = vector.z;
  four[3] = vector.w;
}
__device__ __forceinline__ void load_shared_floats(cuda::SharedAddress from, float (&four)[4]) {
  const uint4 vector = cuda::load_shared_vector(from);
  four[0] = __uint_as_float(vector.x);
  four[1] = __uint_as_float(vector.y);
  four[2] = __uint_as_float(vector.z);
  four[3] = __uint_as_float(vector.w);
}
__device__ __forceinline__ void store_four_floats(float* to, float x, float y, float z, float w) {
  *reinterpret_cast<float4*>(to) = make_float4(x, y, z, w);
}

// --- Scales --------------------------------------------------------------------------------------

// Of a half of a row's span; those of sub-blocks behind the end of the row are 0. `groups`: of the
// span.
template <class B, class Row>
__device__ __forceinline__ void unpack_scales(const Row& row, int half, int groups,
                                              HalfScales<B>& scales, HalfScales<B>& minima) {
  constexpr int kHalf = kHalfSubBlocks<B>;
  Scales<B>::load(row, half, scales, minima);
  if (groups == kSpan / kGroup) return;
#pragma unroll
  for (int i = 0; i < kHalf; ++i)
    if (half * kHalf + i >= groups * kGroup / B::kSubBlock) scales[i] = minima[i] = 0;
}

// --- Steps ---------------------------------------------------------------------------------------

__device__ __forceinline__ float float_of(std::int32_t sum, std::int32_t start) {
  return __int_as_float(sum) - __int_as_float(start);
}
// The sum of kCount codes, 16 or 32, from an aligned vector on.
template <int kCount>
__device__ __forceinline__ int sum_of_codes(const std::uint8_t* codes) {
  int sum = 0;
#pragma unroll
  for (int i = 0; i < kCount; i += 16) {
    const uint4 vector = *reinterpret_cast<const uint4*>(codes + i);
    sum = __dp4a(static_cast<int>(vector.x), 0x01010101, sum);
    sum = __dp4a(static_cast<int>(vector.y), 0x01010101, sum);
    sum = __dp4a(static_cast<int>(vector.z), 0x01010101, sum);
    sum = __dp4a(static_cast<int>(vector.w), 0x01010101, sum);
  }
  return sum;
}

// --- Outputs -------------------------------------------------------------------------------------

// Finishes four neighbouring sums of a row, and stores those that are outputs.
__device__ __forceinline__ void store_four(const Gemm& gemm, int64_t row, int64_t column,
                                           const float (&sums)[4], bool vectors) {
  const int count = static_cast<int>(min(gemm.n - column, int64_t{4}));
  if (count <= 0) return;
  const linear::Epilogue& e = gemm.epilogue;
  float values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t at = column + (i < count ? i : 0);
    const float bias = e.bias ? math::load_scale<float>(e.bias, at, e.bias_dtype) : 0.0f;
    values[i] = linear::with_addends(sums[i], bias, linear::residual_at<float>(e, row, at), e);
  }
  linear::store_values<float>(gemm, row * gemm.output_row + column, values, count, vectors);
}

}  // namespace planq::linear_gguf
