// gguf_dequantize on CUDA: a thread block has a tile, which is some blocks side by side. It copies
// their bytes to shared memory and works out the scales of all sub-blocks. Then threads make
// vectors of the output, neighbours neighbouring ones. The file that includes this names the type
// of the output: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/counter.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/neighbours.cuh"
#include "ops/gguf/blocks.h"
#include "ops/gguf/gguf_dequantize/codes.cuh"
#include "ops/gguf/gguf_dequantize/rows.h"

namespace planq::gguf_dequantize {
namespace {

using cuda::Element;
using std::int64_t;

// Neighbours that are a vector of the output.
constexpr int kEach = cuda::kVectorBytes / static_cast<int>(sizeof(Element));
constexpr int kThreads = 128;
// Vectors of a tile: those that are worth a thread block of their own, and the most.
constexpr int kLeastVectors = kThreads, kMostVectors = 8 * kThreads;

struct BlockArgs {
  Rows rows;
  std::uint32_t tiles;   // of a row
  std::uint32_t blocks;  // of a tile
  Element* output;
  bool has_vectors;  // neighbours lie in aligned vectors of the output
};

// What elements of a sub-block have in common.
struct Scaled {
  float scale;
};
struct Raised {
  float scale, minimum;
};

template <class B>
struct Tile {
  static_assert(kThreads * kEach % B::kElements == 0);
  static constexpr bool kHasMinimum = gguf::Run<B>::kHasMinimum;
  static constexpr unsigned kBytes = B::kBytes, kSubBlock = B::kSubBlock;
  static constexpr unsigned kVectors = B::kElements / kEach, kParts = B::kElements / kSubBlock;
  static constexpr unsigned kMostBlocks = kMostVectors / kVectors;
  // It begins anywhere in its first 16 bytes, and a word behind its last may be read.
  static constexpr unsigned kCopies = (15 + kMostBlocks * kBytes + 15) / 16 + 1;
  using Part = std::conditional_t<kHasMinimum, Raised, Scaled>;

  uint4 copies[kCopies];
  Part parts[kMostBlocks * kParts];

  // `past`: where it begins in the first vector.
  __device__ __forceinline__ void copy(gguf::Bytes from, unsigned past, unsigned blocks) {
    const unsigned end = past + blocks * kBytes;
    const gguf::Bytes first = from - past + threadIdx.x * 16;
#pragma unroll 1
    for (unsigned at = 0; at + threadIdx.x * 16 < end; at += kThreads * 16)
      cuda::copy_once(&copies[at / 16 + threadIdx.x], first + at);
    cuda::wait_for_copies();
    __syncthreads();
  }
  __device__ __forceinline__ void find_parts(unsigned past, unsigned blocks) {
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < blocks * kParts; i += kThreads) {
      const gguf::Bytes block =
          reinterpret_cast<gguf::Bytes>(copies) + (past + i / kParts * kBytes);
      const gguf::Run<B> run(block, static_cast<int>(i % kParts * kSubBlock));
      if constexpr (kHasMinimum)
        parts[i] = {run.scale, run.minimum};
      else
        parts[i] = {run.scale};
    }
    __syncthreads();
  }
  __device__ __forceinline__ SharedBlock block(unsigned offset) const {
    return {reinterpret_cast<const std::uint32_t*>(copies), offset};
  }
};

// The elements of a vector, whose first one is an element of the block. Products are exact where
// there is a minimum, so a fused operation has the same bits.
template <class B, class Part>
__device__ __forceinline__ void decode(const SharedBlock& block, unsigned first, const Part& part,
                                       float (&values)[kEach]) {
  // A byte becomes the lowest bits of a float that is 2^23 larger.
  constexpr float kAbove = 0x1p23f + Codes<B>::kOffset;
  std::uint32_t codes[kEach / 4];
  Codes<B>::load(block, first, codes);
#pragma unroll
  for (unsigned i = 0; i < kEach; ++i) {
    const float raised = __uint_as_float(__byte_perm(codes[i / 4], 0x4B000000u, 0x7440u + i % 4));
    if constexpr (gguf::Run<B>::kHasMinimum)
      values[i] = __fmaf_rn(part.scale, raised - kAbove, part.minimum);
    else
      values[i] = part.scale * (raised - kAbove);
  }
}

__device__ __forceinline__ void store(const float (&values)[kEach], Element* to, bool vectors) {
  if (vectors) [[likely]] {
    cuda::store_vector(to, cuda::packed<Element>(values).vector(0));
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i) to[i] = math::narrow<Element>(values[i]);
  }
}

__device__ __forceinline__ void store_zeros(Element* to, unsigned vectors, bool whole) {
  const float zeros[kEach] = {};
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < vectors; i += kThreads) store(zeros, to + i * kEach, whole);
}

// A thread's vectors have the same place in their blocks, since blocks divide the threads.
template <class B>
__global__ void __launch_bounds__(kThreads, cuda::fitting_blocks(kThreads, 16))
    dequantize_blocks(const __grid_constant__ BlockArgs args) {
  using Own = Tile<B>;
  __shared__ Own tile;
  const gguf::BlockRows& rows = args.rows.rows;
  const unsigned row = rows.space.rank == 0 ? 0 : blockIdx.x / args.tiles;
  const int64_t begin = int64_t{blockIdx.x - row * args.tiles} * args.blocks;
  const auto blocks = static_cast<unsigned>(min(rows.blocks - begin, int64_t{args.blocks}));
  const auto at = rows.space.offsets(row);
  const gguf::Bytes own_row = args.rows.find(at.at[gguf::BlockRows::kBlocks]);
  Element* const output = args.output + at.at[gguf::BlockRows::kNumbers] + begin * B::kElements;
  if (own_row == nullptr) return store_zeros(output, blocks * Own::kVectors, args.has_vectors);
  const gguf::Bytes input = own_row + begin * B::kBytes;
  const auto past = static_cast<unsigned>(cuda::misalignment<16>(input));
  tile.copy(input, past, blocks);
  tile.find_parts(past, blocks);

  const unsigned first = threadIdx.x % Own::kVectors * kEach;
  unsigned offset = past + threadIdx.x / Own::kVectors * Own::kBytes;
  const typename Own::Part* part = tile.parts + threadIdx.x * kEach / Own::kSubBlock;
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < blocks * Own::kVectors; i += kThreads) {
    float values[kEach];
    decode<B>(tile.block(offset), first, *part, values);
    store(values, output + i * kEach, args.has_vectors);
    offset += kThreads / Own::kVectors * Own::kBytes;
    part += kThreads * kEach / Own::kSubBlock;
  }
}

// How many indices name no row.
struct InvalidArgs {
  Rows rows;
  cuda::Counter counter;
};

__global__ void __launch_bounds__(kThreads)
    count_invalid(const __grid_constant__ InvalidArgs args) {
  args.counter.count<kThreads>(blockIdx.x, [&](int64_t i) {
    return !args.rows.has(args.rows.rows.space.offsets(i).at[gguf::BlockRows::kBlocks]);
  });
}

Status prepare(const Descriptor& descriptor, const Device&, State&) {
  const Fields& f = descriptor.as<Fields>();
  if (f.has_index()) PLANQ_TRY(cuda::preload(count_invalid));
  return gguf::by_type(f.type,
                       [](auto type) { return cuda::preload(dequantize_blocks<decltype(type)>); });
}

// Blocks of a tile: so few that every multiprocessor has some tiles.
template <class B>
std::uint32_t blocks_of_tile(const Rows& rows, int multiprocessors) {
  const int64_t vectors = rows.size() * rows.rows.blocks * Tile<B>::kVectors;
  const int64_t share = vectors / (int64_t{24} * std::max(multiprocessors, 1));
  const int64_t blocks =
      std::clamp<int64_t>(share, kLeastVectors, kMostVectors) / Tile<B>::kVectors;
  return static_cast<std::uint32_t>(std::min(blocks, rows.rows.blocks));
}

template <class B>
Status launch_blocks(const Call& call, const Rows& rows, Bound& bound) {
  if (rows.size() * rows.rows.blocks == 0) return Status::success();
  const OperandView& output = call.operands[kOutput];
  constexpr int kSize = sizeof(Element);
  const int64_t row_bytes = call.fields<Fields>().shape.last() * kSize;
  const std::uint32_t blocks = blocks_of_tile<B>(rows, call.device.multiprocessors);
  const int64_t tiles = cuda::ceil_div(rows.rows.blocks, blocks);
  const BlockArgs args = {rows, static_cast<std::uint32_t>(tiles), blocks,
                          static_cast<Element*>(output.data),
                          cuda::has_whole_words(output, row_bytes, kSize, cuda::kVectorBytes)};
  return cuda::launch(dequantize_blocks<B>,
                      {.blocks = rows.size() * tiles, .threads = dim3(kThreads)}, args, bound);
}

Status bind(const Call& call, Bound& bound) {
  const Rows rows(call);
  PLANQ_TRY(gguf::by_type(call.fields<Fields>().type, [&](auto type) {
    return launch_blocks<decltype(type)>(call, rows, bound);
  }));
  void* const invalid = call.operands[kInvalid].data;
  if (invalid == nullptr) return Status::success();
  const InvalidArgs args = {rows, cuda::Counter(rows.size(), invalid, call.device)};
  PLANQ_TRY(args.counter.clear(bound));
  return cuda::launch(count_invalid, {.blocks = args.counter.blocks, .threads = dim3(kThreads)},
                      args, bound);
}

constexpr Kernel kKernels[] = {kernel<cuda::kElement, Backend::Cuda>(prepare, bind)};

}  // namespace
}  // namespace planq::gguf_dequantize
