// Neighbours in a row of a table, as floats: elements, or codes with their scale.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/divider.cuh"
#include "cuda/lines.cuh"
#include "cuda/neighbours.cuh"
#include "cuda/pairs.cuh"
#include "ops/affine/affine.h"
#include "ops/gather/embedding/desc.h"

namespace planq::embedding {
namespace {

// A table in memory. Strides count elements of storage, which are bytes where there are codes.
struct Table {
  const void* data;
  std::int64_t stride;
  NibbleOrder order;
  const void* scale;
  DType scale_dtype;
  std::int64_t scale_stride;
  cuda::LineDivider group;  // columns that share a scale; of a row with one scale, more than all

  explicit Table(const Call& call)
      : data(call.operands[kTable].data),
        stride(call.operands[kTable].strides[0]),
        order(call.fields<Fields>().nibble_order),
        scale(call.operands[kScale].data),
        scale_dtype(call.fields<Fields>().scale_dtype),
        scale_stride(call.operands[kScale].strides[0]) {
    const Fields& f = call.fields<Fields>();
    if (f.group() == 0) scale_stride = 1;
    group = cuda::LineDivider(f.group() > 0 ? f.group() : f.width() + 1, f.width());
  }
  __device__ __forceinline__ float scale_at(std::int64_t row, std::int64_t column) const {
    return math::load_scale<float>(scale, row * scale_stride + group.quotient(column), scale_dtype);
  }
};

// kCount floating elements, a vector or less, or one.
template <DType kTableType, int kCount>
struct Piece {
  using T = math::Stored<kTableType>;
  cuda::Neighbours<T, kCount> held;

  __device__ __forceinline__ void load(const Table& table, std::int64_t row, std::int64_t column) {
    held.load(static_cast<const T*>(table.data) + row * table.stride + column);
  }
  __device__ __forceinline__ void widen(const Table&, float (&values)[kCount]) const {
    if constexpr (sizeof(T) == 2 && kCount % 2 == 0) {
      std::uint32_t pairs[kCount / 2];
      memcpy(pairs, held.each, sizeof pairs);
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = cuda::of_pair<T>(pairs[i / 2], i % 2);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = math::widen(held.each[i]);
    }
  }
};

// A code as an unsigned one in the low bits of 2^23: the difference is exact.
__device__ __forceinline__ float code_value(std::uint32_t code, std::uint32_t lowest) {
  const float base = 8388608.0f + static_cast<float>(lowest);
  return math::bit_cast<float>(0x4B000000u | (code ^ lowest)) - base;
}

// kCount codes under one scale.
template <int kCount>
struct Piece<DType::Int8, kCount> {
  cuda::Neighbours<std::uint8_t, kCount> held;
  float scale;

  __device__ __forceinline__ void load(const Table& table, std::int64_t row, std::int64_t column) {
    held.load(static_cast<const std::uint8_t*>(table.data) + row * table.stride + column);
    scale = table.scale_at(row, column);
  }
  __device__ __forceinline__ void widen(const Table&, float (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = scale * code_value(held.each[i], 128);
  }
};

template <int kCount>
struct Piece<DType::Int4, kCount> {
  cuda::Neighbours<std::uint8_t, (kCount + 1) / 2> held;
  float scale;
  bool is_odd;  // of a single code: the second of its byte

  __device__ __forceinline__ void load(const Table& table, std::int64_t row, std::int64_t column) {
    held.load(static_cast<const std::uint8_t*>(table.data) + row * table.stride + column / 2);
    scale = table.scale_at(row, column);
    is_odd = kCount == 1 && column % 2 == 1;
  }
  __device__ __forceinline__ void widen(const Table& table, float (&values)[kCount]) const {
    const bool high_first = table.order == NibbleOrder::HighFirst;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool second = kCount == 1 ? is_odd : i % 2 == 1;
      const std::uint32_t byte = held.each[i / 2];
      const std::uint32_t code = second != high_first ? byte >> 4 : byte & 15u;
      values[i] = scale * code_value(code, 8);
    }
  }
};

}  // namespace
}  // namespace planq::embedding
