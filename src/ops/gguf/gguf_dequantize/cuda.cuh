// gguf_dequantize on CUDA: a thread has eight neighbours of a block at a time. The file that
// includes this names the type of the output: see cuda/element.cuh.
#pragma once

#include <cstdint>

#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/neighbours.cuh"
#include "cuda/row_share.cuh"
#include "ops/gguf/block_rows.h"
#include "ops/gguf/blocks.h"
#include "ops/gguf/gguf_dequantize/desc.h"

namespace planq::gguf_dequantize {
namespace {

using cuda::Element;
using std::int64_t;

// Neighbours of a thread, which are all in one run.
constexpr int kEach = 8;
static_assert(gguf::kRun % kEach == 0);

struct BlockArgs {
  gguf::BlockRows rows;
  cuda::RowShare share;
  gguf::Bytes input;
  Element* output;
  bool has_vectors;  // neighbours lie in aligned vectors of the output
};

template <class B>
__device__ __forceinline__ void decode(gguf::Bytes block, int first, float (&values)[kEach]) {
  const gguf::Run<B> run(block, first);
#pragma unroll
  for (int i = 0; i < kEach; ++i) values[i] = run.value(block, first + i);
}

template <class B>
__global__ void __launch_bounds__(cuda::RowShare::kThreads)
    dequantize_blocks(const __grid_constant__ BlockArgs args) {
  constexpr int kUnits = B::kElements / kEach;
  const cuda::RowShare& share = args.share;
  const int64_t own = share.first_row() + share.own_row();
  if (own >= share.rows) return;
  const auto at = args.rows.space.offsets(own);
  const gguf::Bytes input = args.input + at.at[gguf::BlockRows::kBlocks];
  Element* const output = args.output + at.at[gguf::BlockRows::kNumbers];
#pragma unroll 1
  for (int64_t unit = share.first_unit(); unit < share.units; unit += share.step()) {
    float values[kEach];
    decode<B>(input + unit / kUnits * B::kBytes, static_cast<int>(unit % kUnits) * kEach, values);
    Element* const to = output + unit * kEach;
    if (args.has_vectors) {
      cuda::packed<Element>(values).store(to);
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i) to[i] = math::narrow<Element>(values[i]);
    }
  }
}

Status prepare(const Descriptor& descriptor, const Device&, State&) {
  return gguf::by_type(descriptor.as<Fields>().type,
                       [](auto type) { return cuda::preload(dequantize_blocks<decltype(type)>); });
}

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const OperandView& output = call.operands[kOutput];
  const gguf::BlockRows rows(f.shape, f.type, call.operands[kInput], output);
  if (rows.space.size() * rows.blocks == 0) return Status::success();
  constexpr int kSize = sizeof(Element);
  return gguf::by_type(f.type, [&](auto type) {
    using B = decltype(type);
    const cuda::RowShare share(rows.space.size(), rows.blocks * (B::kElements / kEach), 1,
                               call.device);
    const BlockArgs args = {
        rows, share, static_cast<gguf::Bytes>(call.operands[kInput].data),
        static_cast<Element*>(output.data),
        cuda::has_whole_words(output, f.shape.last() * kSize, kSize, cuda::kVectorBytes)};
    return cuda::launch(dequantize_blocks<B>, share.grid(), args, bound);
  });
}

constexpr Kernel kKernels[] = {kernel<cuda::kElement, Backend::Cuda>(prepare, bind)};

}  // namespace
}  // namespace planq::gguf_dequantize
