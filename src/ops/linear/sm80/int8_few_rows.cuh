// Integer gemms with few rows of input, on mma.sync. They take as long as the weight takes to read.
//
// A block has some rows of the weight, and its warps split k. Warps load 16-byte vectors straight
// from global memory to the registers that mma.sync reads. The weight is operand a of mma.sync,
// which has 16 rows, the input is operand b, which has eight.
//
// Of the 32 terms of a step, lane t of a row should have words from terms 4t and 16 + 4t. Here it
// gives two words of the 16 bytes that it has loaded, for both operands. So a step has other terms
// than it would, but the same ones of both operands, and integer sums do not depend on the order.
#pragma once

#include <cstdint>

#include "cuda/memory_access.cuh"
#include "cuda/mma.cuh"
#include "ops/linear/sm80/args.h"
#include "ops/linear/sm80/epilogue.cuh"

namespace planq::linear {

// kInputs: rows of the input, a multiple of 8. kWeights: rows of the weight, a multiple of 16.
// kChunks: chunks along k that a warp loads at a time. kBlocks: blocks on a multiprocessor, at
// least.
template <int kInputs_, int kWeights_, int kChunks_ = 2, int kBlocks_ = 3>
struct FewRowsTile {
  static constexpr int kInputs = kInputs_, kWeights = kWeights_;
  static constexpr int kWarps = 8, kThreads = kWarps * cuda::kWarp;
  static constexpr int kChunk = 64;  // bytes along k that four lanes load
  static constexpr int kChunks = kChunks_, kBlocks = kBlocks_;
  static constexpr int kStep = kChunk * kChunks;
  static constexpr SumShape sums() { return {kWeights, kInputs * kWeights, kWarps, kThreads}; }
  static constexpr int kSumsBytes = kInputs * kWeights * kWarps * 4;
};

// Loads the last 16 bytes of a row, from number `first` on. Those from number `terms` on are 0.
__device__ __forceinline__ uint4 load_end(const std::uint8_t* row, int first, int terms) {
  std::uint32_t words[4] = {};
#pragma unroll 1
  for (int i = terms - 1; i >= first; --i) {
    words[3] = words[3] << 8 | words[2] >> 24;
    words[2] = words[2] << 8 | words[1] >> 24;
    words[1] = words[1] << 8 | words[0] >> 24;
    words[0] = words[0] << 8 | __ldg(row + i);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// The rows of an operand as lanes load them. A lane has row lane / 4 of every eight rows, and bytes
// 16 (lane % 4) to 16 (lane % 4) + 15 of every chunk.
template <int kRows>
class FewRowsOperand {
 public:
  __device__ __forceinline__ FewRowsOperand(const std::uint8_t* data, std::int64_t stride, int rows)
      : data_(data), stride_(stride), rows_(rows) {}

  template <class Load>
  __device__ __forceinline__ void load(uint4 (&vectors)[kRows / 8], bool exist,
                                       const Load& load) const {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      const int row = lane / 4 + i * 8;
      vectors[i] = make_uint4(0, 0, 0, 0);
      if (exist && row < rows_) vectors[i] = load(data_ + row * stride_);
    }
  }

 private:
  const std::uint8_t* data_;
  std::int64_t stride_;
  std::int32_t rows_;
};

template <class Tile>
class FewRowsWarp {
 public:
  using Inputs = uint4[Tile::kInputs / 8];
  using Weights = uint4[Tile::kWeights / 8];

  // Multiplies some chunks and adds them to the sums.
  __device__ __forceinline__ void add(const Inputs (&inputs)[Tile::kChunks],
                                      const Weights (&weights)[Tile::kChunks], Signs signs) {
    switch (signs) {
      case Signs::BothSigned:
        return add<false, false>(inputs, weights);
      case Signs::UnsignedInput:
        return add<true, false>(inputs, weights);
      case Signs::UnsignedWeight:
        return add<false, true>(inputs, weights);
      case Signs::BothUnsigned:
        return add<true, true>(inputs, weights);
    }
  }
  __device__ __forceinline__ void store(std::int32_t* sums) const {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
    std::int32_t* plane = sums + warp * Tile::sums().plane;
#pragma unroll
    for (int i = 0; i < Tile::kWeights / 16; ++i)
#pragma unroll
      for (int j = 0; j < Tile::kInputs / 8; ++j)
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const int input = j * 8 + lane % 4 * 2 + part % 2;
          const int weight = i * 16 + lane / 4 + part / 2 * 8;
          plane[Tile::sums().place(input, weight)] = sums_[i][j][part];
        }
  }

 private:
  template <bool kUnsignedInput, bool kUnsignedWeight>
  __device__ __forceinline__ void add(const Inputs (&inputs)[Tile::kChunks],
                                      const Weights (&weights)[Tile::kChunks]) {
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk)
#pragma unroll
      for (int i = 0; i < Tile::kWeights / 16; ++i) {
        const uint4 &low = weights[chunk][2 * i], &high = weights[chunk][2 * i + 1];
        const std::uint32_t first[4] = {low.x, high.x, low.y, high.y};
        const std::uint32_t second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int j = 0; j < Tile::kInputs / 8; ++j) {
          const uint4& of_input = inputs[chunk][j];
          std::int32_t (&sums)[4] = sums_[i][j];
          cuda::multiply_add<kUnsignedWeight, kUnsignedInput>(sums, first, of_input.x, of_input.y);
          cuda::multiply_add<kUnsignedWeight, kUnsignedInput>(sums, second, of_input.z, of_input.w);
        }
      }
  }

  std::int32_t sums_[Tile::kWeights / 16][Tile::kInputs / 8][4] = {};
};

// Adds up a warp's share of k, which is every kWarps-th step. The last vector of a row may be cut
// short; the last warp adds it.
template <class Tile>
__device__ __forceinline__ void add_rows_of_warp(const FewRowsOperand<Tile::kInputs>& input,
                                                 const FewRowsOperand<Tile::kWeights>& weight,
                                                 int terms, Signs signs, FewRowsWarp<Tile>& sums) {
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  const int mine = static_cast<int>(threadIdx.x) % 4 * cuda::kVectorBytes;
  const int whole = terms / cuda::kVectorBytes * cuda::kVectorBytes;
  typename FewRowsWarp<Tile>::Inputs inputs[Tile::kChunks];
  typename FewRowsWarp<Tile>::Weights weights[Tile::kChunks];
#pragma unroll 1
  for (int first = warp * Tile::kStep; first < whole; first += Tile::kStep * Tile::kWarps) {
#pragma unroll
    for (int i = 0; i < Tile::kChunks; ++i) {
      const int at = first + i * Tile::kChunk + mine;
      weight.load(weights[i], at < whole,
                  [&](const std::uint8_t* row) { return cuda::load_past_l1(row + at); });
    }
#pragma unroll
    for (int i = 0; i < Tile::kChunks; ++i) {
      const int at = first + i * Tile::kChunk + mine;
      input.load(inputs[i], at < whole,
                 [&](const std::uint8_t* row) { return cuda::load_kept(row + at); });
    }
    sums.add(inputs, weights, signs);
  }
  if (whole == terms || warp != Tile::kWarps - 1) return;
  const auto end = [&](const std::uint8_t* row) { return load_end(row, whole, terms); };
#pragma unroll
  for (int i = 0; i < Tile::kChunks; ++i) {
    weight.load(weights[i], i == 0 && mine == 0, end);
    input.load(inputs[i], i == 0 && mine == 0, end);
  }
  sums.add(inputs, weights, signs);
}

template <class Tile, class Addend>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    multiply_few_rows(const __grid_constant__ Sm80Args args) {
  __shared__ alignas(16) std::int32_t sums[Tile::kSumsBytes / 4];
  const Gemm gemm = args.gemm.at(args.first_gemm + blockIdx.x / args.tiles);
  const std::int64_t column = std::int64_t{blockIdx.x % args.tiles} * Tile::kWeights;
  const OutputTile tile{
      0, column, static_cast<std::int32_t>(gemm.m),
      static_cast<std::int32_t>(min(gemm.n - column, std::int64_t{Tile::kWeights}))};
  const FewRowsOperand<Tile::kInputs> input(gemm.input.data, args.input.stride, tile.rows);
  const FewRowsOperand<Tile::kWeights> weight(gemm.weight.data + column * args.weight.stride,
                                              args.weight.stride, tile.columns);
  FewRowsWarp<Tile> warp;
  add_rows_of_warp<Tile>(input, weight, static_cast<std::int32_t>(gemm.k), args.signs, warp);
  warp.store(sums);
  __syncthreads();
  store_tile<Addend, 1>(gemm, tile, Tile::sums(), sums, args.stores_vectors);
}

}  // namespace planq::linear
