// A head that a warp holds in shared memory between a norm and the turn, whatever its columns are.
// The file that includes this names the type of the elements: see cuda/element.cuh.
#pragma once

#include "cuda/element.cuh"
#include "cuda/neighbours.cuh"
#include "cuda/tree_sum.cuh"
#include "math/conversions.h"
#include "ops/norm/arithmetic.h"
#include "ops/position/heads.h"
#include "ops/position/turned.cuh"

namespace planq::position {
namespace {

__device__ __forceinline__ float weight_at(const void* weights, int column, DType dtype) {
  if (dtype == DType::Float16)
    return math::widened(static_cast<const math::Half*>(weights)[column]);
  if (dtype == DType::BFloat16)
    return math::widened(static_cast<const math::Bfloat16*>(weights)[column]);
  return static_cast<const float*>(weights)[column];
}

// A head in shared memory. Each lane writes the columns that it reads from the row: kEach
// neighbours, and those that are a whole warp's further on.
template <int kEach>
struct HeldHead {
  static constexpr int kStep = kEach * kWarp;
  static constexpr int kSteps = static_cast<int>(kMostColumns) / kStep;

  const Heads& heads;
  float* x;
  int lane;

  // Reads the row, and answers the sum of its squares.
  __device__ __forceinline__ float read(const Element* row) const {
    float steps[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      steps[s] = math::kNoTerm;
      if (s * kStep >= heads.columns) continue;
      const int column = s * kStep + lane * kEach;
      float terms[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) terms[i] = math::kNoTerm;
      if (column < heads.columns) {
        cuda::Neighbours<Element, kEach> own;
        own.load(row + column);
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          x[column + i] = math::widened(own.each[i]);
          terms[i] = x[column + i] * x[column + i];
        }
      }
      steps[s] = cuda::join_lanes(cuda::join_neighbours(terms, cuda::AddNeighbours{}),
                                  cuda::AddNeighbours{});
    }
    return cuda::join_neighbours(steps, cuda::AddNeighbours{});
  }
  __device__ __forceinline__ void scale(float factor, const void* weights) const {
#pragma unroll 1
    for (int column = lane * kEach; column < heads.columns; column += kStep) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const float weight = weight_at(weights, column + i, heads.weight_dtype) + 0.0f;
        x[column + i] = math::rounded_to<Element>((x[column + i] * factor) * weight);
      }
    }
  }
  __device__ __forceinline__ float turned(int column, const float* cosines) const {
    if (column >= heads.rotary) return x[column];
    const int half = heads.rotary / 2;
    const bool interleaved = heads.is_interleaved;
    const int pair = interleaved ? column / 2 : column < half ? column : column - half;
    const float a = x[interleaved ? 2 * pair : pair];
    const float b = x[interleaved ? 2 * pair + 1 : pair + half];
    const bool is_first = interleaved ? column % 2 == 0 : column < half;
    const math::TurnedPair made = math::turned(a, b, cosines[pair], cosines[half + pair]);
    return is_first ? made.a : made.b;
  }
  // Where the table has no position, `cosines` is null.
  __device__ __forceinline__ void write(Element* row, const float* cosines) const {
#pragma unroll 1
    for (int column = lane * kEach; column < heads.columns; column += kStep) {
      cuda::Neighbours<Element, kEach> own;
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        own.each[i] =
            cosines ? math::narrowed<Element>(turned(column + i, cosines)) : nan_element();
      own.store(row + column);
    }
  }
};

}  // namespace
}  // namespace planq::position
