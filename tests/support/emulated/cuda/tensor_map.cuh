// In the place of src/cuda/tensor_map.cuh: a box is copied at once.
#pragma once

#include <cstdlib>

#include "cuda/mbarrier.cuh"
#include "cuda/memory_access.cuh"

namespace planq::cuda {

struct ByteMatrices {
  const void* data;
  std::int64_t columns, rows, batches;
  std::int64_t row_stride, batch_stride;
};
// Boxes of this width have a swizzle of 128 bytes.
inline constexpr int kBoxBytes = 128;
struct TensorMap {
  ByteMatrices from;
  int box_rows, box_bytes, unit;
};
// Nothing copies boxes of these: see ops/attention/attention/warpgroups.cuh.
inline constexpr int kBoxNumbers = kBoxBytes / 2;
struct NumberTensor {
  const void* data;
  std::int64_t extents[4], strides[4];
  int box[4];
};
inline bool encode_tensor_map(const NumberTensor& from, TensorMap&) {
  if (reinterpret_cast<std::uintptr_t>(from.data) % 16 != 0) return false;
  for (int i = 1; i < 4; ++i)
    if (from.extents[i] > 1 && (from.strides[i] <= 0 || from.strides[i] % 8 != 0)) return false;
  return true;
}

inline bool encode_tensor_map(const ByteMatrices& from, int box_rows, TensorMap& map, int box_bytes,
                              int unit) {
  const auto address = reinterpret_cast<std::uintptr_t>(from.data);
  if (address % 16 != 0 || from.row_stride % 16 != 0 || box_bytes % 16 != 0) return false;
  if (box_bytes / unit > 256 || from.columns % unit != 0) std::abort();
  map = {from, box_rows, box_bytes, unit};
  return true;
}

inline void copy_box(SharedAddress to, const TensorMap& map, int column, int row, int,
                     const Barrier& barrier) {
  const std::int64_t first = std::int64_t{column} * map.unit;
  if (to % 128 != 0 || first % 16 != 0) std::abort();
  for (int i = 0; i < map.box_rows; ++i)
    for (int j = 0; j < map.box_bytes; ++j) {
      const bool inside = row + i < map.from.rows && first + j < map.from.columns;
      const auto* const data = static_cast<const std::uint8_t*>(map.from.data);
      const bool swizzled = map.box_bytes == kBoxBytes;
      const SharedAddress at = to + i * map.box_bytes + j;
      *reinterpret_cast<std::uint8_t*>(swizzled ? at ^ at / 8 % 128 / 16 * 16 : at) =
          inside ? data[(row + i) * map.from.row_stride + first + j] : std::uint8_t{0};
    }
  barrier.come(map.box_rows * map.box_bytes);
}
inline void copy_box(void* to, const TensorMap& map, int column, int row, int batch,
                     const Barrier& barrier) {
  copy_box(shared_address_of(to), map, column, row, batch, barrier);
}

}  // namespace planq::cuda
