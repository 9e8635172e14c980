// TMA: copies of boxes of a matrix from global to shared memory, and the tensor maps that describe
// the matrix. A box is the CUDA driver's word for what one copy brings.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/mbarrier.cuh"

namespace planq::cuda {

// The driver's CUtensorMap. A kernel gets it as a __grid_constant__ argument.
struct alignas(64) TensorMap {
  std::uint64_t opaque[16];
};

// The matrices of a batch, as bytes. They are copied in boxes of `box_rows` rows by `box_bytes`
// bytes. What lies outside a matrix is read as 0.
struct ByteMatrices {
  const void* data;
  std::int64_t columns, rows, batches;
  std::int64_t row_stride, batch_stride;  // bytes
};
inline constexpr int kBoxBytes = 128;
// Boxes of half the width, with a swizzle of 64 bytes.
inline constexpr int kNarrowBoxBytes = 64;

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

// The driver's function, or null if the driver has none. It is looked up once. A library that was
// linked with the driver would not load on machines without one.
inline EncodeTensorMap tensor_map_encoder() {
  static const EncodeTensorMap encoder = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &found);
    const bool ok = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return ok ? reinterpret_cast<EncodeTensorMap>(function) : nullptr;
  }();
  return encoder;
}

// Makes a map. Returns false if TMA cannot read such matrices. Boxes of the widths above have the
// swizzle of their width, others none. unit: bytes that the map counts as one, 1 or 2.
inline bool encode_tensor_map(const ByteMatrices& from, int box_rows, TensorMap& map,
                              int box_bytes = kBoxBytes, int unit = 1) {
  constexpr std::int64_t kMaxExtent = INT32_MAX, kMaxStride = (std::int64_t{1} << 40) - 1;
  const auto stride_fits = [](std::int64_t stride) {
    return stride > 0 && stride <= kMaxStride && stride % 16 == 0;
  };
  const bool fits = reinterpret_cast<std::uintptr_t>(from.data) % 16 == 0 && from.columns >= 1 &&
                    from.rows >= 1 && from.batches >= 1 && from.columns <= kMaxExtent &&
                    from.rows <= kMaxExtent && from.batches <= kMaxExtent;
  // With one row or one matrix, the stride may be anything, but the map wants a valid one.
  const std::int64_t row_stride = from.rows > 1 ? from.row_stride : (from.columns + 15) / 16 * 16;
  if (!fits || !stride_fits(row_stride)) return false;
  const std::int64_t batch_stride = from.batches > 1 ? from.batch_stride : row_stride;
  const EncodeTensorMap encode = tensor_map_encoder();
  if (!stride_fits(batch_stride) || !encode) return false;
  const cuuint64_t extents[3] = {static_cast<cuuint64_t>(from.columns / unit),
                                 static_cast<cuuint64_t>(from.rows),
                                 static_cast<cuuint64_t>(from.batches)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(row_stride),
                                 static_cast<cuuint64_t>(batch_stride)};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(box_bytes / unit),
                             static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUtensorMapSwizzle swizzle = box_bytes == kBoxBytes         ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : box_bytes == kNarrowBoxBytes ? CU_TENSOR_MAP_SWIZZLE_64B
                                                                    : CU_TENSOR_MAP_SWIZZLE_NONE;
  return encode(reinterpret_cast<CUtensorMap*>(&map),
                unit == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8, 3,
                const_cast<void*>(from.data), extents, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// A tensor of 16-bit numbers. Those of axis 0 lie one after another, other axes lie anyhow. It is
// copied in boxes whose rows along axis 0 have 128 bytes, with a swizzle of 128 bytes.
struct NumberTensor {
  const void* data;
  std::int64_t extents[4];
  std::int64_t strides[4];  // in numbers; the first is 1
  int box[4];               // extents; the first is kBoxNumbers
};
inline constexpr int kBoxNumbers = kBoxBytes / 2;

// The same for such a tensor. An axis with one place may have any stride.
inline bool encode_tensor_map(const NumberTensor& from, TensorMap& map) {
  constexpr int kAxes = 4;
  constexpr std::int64_t kMaxStride = (std::int64_t{1} << 40) - 1;
  cuuint64_t extents[kAxes], strides[kAxes - 1];
  cuuint32_t box[kAxes];
  const cuuint32_t steps[kAxes] = {1, 1, 1, 1};
  if (reinterpret_cast<std::uintptr_t>(from.data) % 16 != 0) return false;
  for (int i = 0; i < kAxes; ++i) {
    if (from.extents[i] < 1 || from.extents[i] > INT32_MAX) return false;
    extents[i] = static_cast<cuuint64_t>(from.extents[i]);
    box[i] = static_cast<cuuint32_t>(from.box[i]);
    if (i == 0) continue;
    const std::int64_t bytes = from.extents[i] > 1 ? from.strides[i] * 2 : 16;
    if (bytes <= 0 || bytes > kMaxStride || bytes % 16 != 0) return false;
    strides[i - 1] = static_cast<cuuint64_t>(bytes);
  }
  const EncodeTensorMap encode = tensor_map_encoder();
  return encode && encode(reinterpret_cast<CUtensorMap*>(&map), CU_TENSOR_MAP_DATA_TYPE_UINT16,
                          kAxes, const_cast<void*>(from.data), extents, strides, box, steps,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Prefetches to the L2 cache. Address and size are multiples of 16 bytes.
__device__ __forceinline__ void prefetch_bytes(std::uintptr_t from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// Copies bytes that lie side by side. Addresses and size are multiples of 16 bytes.
__device__ __forceinline__ void copy_bytes(void* to, const void* from, int bytes,
                                           const Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(barrier.address())
      : "memory");
}

// Copies a box. The barrier counts the bytes of a whole box, even if a part of it lies outside the
// matrix.
__device__ __forceinline__ void copy_box(SharedAddress to, const TensorMap& map, int column,
                                         int row, int batch, const Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(batch), "r"(barrier.address())
      : "memory");
}
__device__ __forceinline__ void copy_box(void* to, const TensorMap& map, int column, int row,
                                         int batch, const Barrier& barrier) {
  copy_box(shared_address(to), map, column, row, batch, barrier);
}

// A box of a NumberTensor.
__device__ __forceinline__ void copy_box(void* to, const TensorMap& map, const int (&at)[4],
                                         const Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(to)),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(barrier.address())
      : "memory");
}

}  // namespace planq::cuda
