// gguf_quantize on CUDA: a thread block makes blocks that lie side by side, its tile. A thread
// measures a unit; elements and bytes are then shared among all threads. The file that includes
// this names the type of the input: see cuda/element.cuh.
#pragma once

#include <cstdint>

#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "ops/gguf/block_rows.h"
#include "ops/gguf/gguf_quantize/desc.h"
#include "ops/gguf/quantizers.h"

#define PLANQ_LEVEL device
#include "ops/gguf/quantizer_loops.h"
#undef PLANQ_LEVEL

namespace planq::gguf_quantize {
namespace {

using cuda::Element;
using gguf::Quantizer;
using gguf::device::Coder;
using std::int64_t;

constexpr int kThreads = 128;

struct QuantizeArgs {
  gguf::BlockRows rows;
  int64_t tiles;  // of a row
  const Element* input;
  std::uint8_t* output;
};

template <GgufType kType>
struct Tile {
  using Q = Quantizer<kType>;
  static constexpr int kUnit = Q::kUnit, kUnitsOfBlock = Q::kElements / kUnit;
  static constexpr int kUnits = kUnit <= 32 ? kThreads : 4096 / kUnit;
  static constexpr int kBlocks = kUnits / kUnitsOfBlock;

  // The threads of a warp read one element each, of units that follow each other: rows of odd
  // length lie in different banks.
  float numbers[kUnits][kUnit + 1];
  gguf::Fit fits[kUnits];
  gguf::Factors factors[kUnits];
  typename Q::Head heads[kBlocks];
  std::uint8_t codes[kUnits * kUnit];

  __device__ __forceinline__ void load(const Element* from, int elements) {
#pragma unroll 4
    for (int i = own(); i < elements; i += kThreads)
      numbers[i / kUnit][i % kUnit] = math::widen(from[i]);
    __syncthreads();
  }
  __device__ __forceinline__ void fit(int units) {
    const int unit = own();
    if (unit < units) {
      const float* const x = numbers[unit];
      std::uint8_t* const kept = codes + unit * kUnit;
      float first = 0, second = 0;
      if constexpr (gguf::device::kKeepsCodes<kType>)
        Coder<kType>::template fit<kUnit>(x, first, second, [kept](int e, float code) {
          kept[e] = static_cast<std::uint8_t>(code);
        });
      else
        Coder<kType>::template fit<kUnit>(x, first, second);
      fits[unit] = {first, second};
    }
    __syncthreads();
  }
  __device__ __forceinline__ void combine(int blocks) {
    for (int block = own(); block < blocks; block += kThreads)
      heads[block] = Q::head(fits + block * kUnitsOfBlock);
    __syncthreads();
    for (int unit = own(); unit < blocks * kUnitsOfBlock; unit += kThreads)
      factors[unit] = Q::factors(heads[unit / kUnitsOfBlock], unit % kUnitsOfBlock);
    __syncthreads();
  }
  __device__ __forceinline__ void code(int elements) {
    for (int i = own(); i < elements; i += kThreads) {
      const gguf::Factors& own = factors[i / kUnit];
      if (gguf::device::kKeepsCodes<kType> && own.first == 0) continue;
      const float x = numbers[i / kUnit][i % kUnit];
      const float code = Coder<kType>::code(x, own.first, own.second);
      codes[i] = static_cast<std::uint8_t>(static_cast<int>(code));
    }
    __syncthreads();
  }
  __device__ __forceinline__ void store(std::uint8_t* to, int blocks) const {
    for (int i = own(); i < blocks * Q::kBytes; i += kThreads) {
      const int block = i / Q::kBytes;
      to[i] = static_cast<std::uint8_t>(
          Q::byte(heads[block], codes + block * Q::kElements, i % Q::kBytes));
    }
  }

 private:
  __device__ __forceinline__ static int own() { return static_cast<int>(threadIdx.x); }
};

template <GgufType kType>
__global__ void __launch_bounds__(kThreads)
    quantize_blocks(const __grid_constant__ QuantizeArgs args) {
  using Q = Quantizer<kType>;
  using OwnTile = Tile<kType>;
  __shared__ OwnTile tile;
  const int64_t row = blockIdx.x / args.tiles;
  const int64_t first = blockIdx.x % args.tiles * OwnTile::kBlocks;
  const int64_t rest = args.rows.blocks - first;
  const int blocks = rest < OwnTile::kBlocks ? static_cast<int>(rest) : OwnTile::kBlocks;
  const auto at = args.rows.space.offsets(row);
  tile.load(args.input + at.at[gguf::BlockRows::kNumbers] + first * Q::kElements,
            blocks * Q::kElements);
  tile.fit(blocks * OwnTile::kUnitsOfBlock);
  tile.combine(blocks);
  tile.code(blocks * Q::kElements);
  tile.store(args.output + at.at[gguf::BlockRows::kBlocks] + first * Q::kBytes, blocks);
}

Status prepare(const Descriptor& descriptor, const Device&, State&) {
  return gguf::by_quantizer(descriptor.as<Fields>().type, [](auto type) {
    return cuda::preload(quantize_blocks<decltype(type)::kType>);
  });
}

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const gguf::BlockRows rows(f.shape, f.type, call.operands[kOutput], call.operands[kInput]);
  const int64_t count = rows.space.size();
  if (count * rows.blocks == 0) return Status::success();
  return gguf::by_quantizer(f.type, [&](auto type) {
    constexpr GgufType kType = decltype(type)::kType;
    const int64_t tiles = cuda::ceil_div(rows.blocks, Tile<kType>::kBlocks);
    const QuantizeArgs args = {rows, tiles, static_cast<const Element*>(call.operands[kInput].data),
                               static_cast<std::uint8_t*>(call.operands[kOutput].data)};
    return cuda::launch(quantize_blocks<kType>,
                        {.blocks = count * tiles, .threads = dim3(kThreads)}, args, bound);
  });
}

constexpr Kernel kKernels[] = {kernel<cuda::kElement, Backend::Cuda>(prepare, bind)};

}  // namespace
}  // namespace planq::gguf_quantize
