// Launches the kernels of decode.cuh, and decides which of them a problem takes.
#pragma once

#include "cuda/launch.cuh"
#include "ops/codebook/codebook_cuda.h"
#include "ops/codebook/decode.cuh"

namespace planq::cuda {

static __device__ const CompiledValues kCompiledValues = compiled_values();

template <class Out, bool kNibble>
__global__ void __launch_bounds__(kDecodeThreads<Out>,
                                  fitting_blocks(kDecodeThreads<Out>, kDecodeBlocks<Out>))
    decode_vectors(const __grid_constant__ DecodeArgs<Out> args) {
  decode_all_vectors<Out, kNibble>(args, kCompiledValues);
}
template <class Out, bool kNibble>
__global__ void __launch_bounds__(kCodebookThreads)
    decode_elements(const __grid_constant__ ElementDecodeArgs<Out> args) {
  decode_all_elements<Out, kNibble>(args, kCompiledValues);
}

template <class Out, bool kNibble>
DecodeArgs<Out> decode_args(const CodebookDecoding& decoding,
                            const CodebookDecodingOperands& operands) {
  DecodeArgs<Out> args{};
  args.input = static_cast<const std::uint8_t*>(operands.input.data);
  args.output = static_cast<Out*>(operands.output.data);
  args.absmax = operands.absmax;
  args.absmax_dtype = decoding.absmax_dtype;
  if (decoding.codebook == Codebook::Given) {
    args.source.given = static_cast<const float*>(operands.codebook);
    args.source.entries = static_cast<int>(decoding.entries);
  } else if (kNibble) {
    args.source.table = static_cast<int>(decoding.codebook) - static_cast<int>(Codebook::Nf4);
  }
  if (decoding.nested_block_size > 0) {
    args.nested_absmax = operands.nested_absmax;
    args.nested_offset = operands.nested_offset;
    args.nested_values = static_cast<const float*>(operands.nested_codebook);
  }
  args.count = decoding.shape.elements();
  args.block_size = decoding.block_size;
  args.nested_size = std::max<std::int64_t>(decoding.nested_block_size, 1);
  args.order = decoding.nibble_order;
  return args;
}

template <class Out, bool kNibble>
Status launch_decoding_of(const CodebookDecoding& decoding,
                          const CodebookDecodingOperands& operands, int multiprocessors,
                          Bound& bound) {
  constexpr int kPer = kPerVector<Out>;
  const ElementPlaces places(decoding.shape, operands.output);
  const ElementPlaces code_places =
      kNibble ? ElementPlaces() : ElementPlaces(decoding.shape, operands.input);
  DecodeArgs<Out> args = decode_args<Out, kNibble>(decoding, operands);
  if (args.count == 0) return Status::success();
  const bool one_block = !args.absmax || args.block_size >= args.count;
  const bool vectors =
      places.consecutive() && code_places.consecutive() && aligned_to(args.output, 16) &&
      aligned_to(args.input, kCodeBytes<Out, kNibble>) &&
      (one_block || args.block_size % kPer == 0) && args.count / kPer < kMaxIndex - (1 << 24);
  if (!vectors) {
    const Grid grid{std::min<std::int64_t>(groups_of(args.count, kCodebookThreads),
                                           std::int64_t{multiprocessors} * 8),
                    dim3(kCodebookThreads)};
    return launch(decode_elements<Out, kNibble>, grid,
                  ElementDecodeArgs<Out>{args, places, code_places}, bound);
  }
  args.vectors = static_cast<std::uint32_t>(args.count / kPer);
  args.tail = static_cast<std::uint32_t>(args.count % kPer);
  args.block_vectors =
      Divider(static_cast<std::uint32_t>(one_block ? kMaxIndex : args.block_size / kPer));
  args.nested_blocks =
      Divider(static_cast<std::uint32_t>(std::min<std::int64_t>(args.nested_size, kMaxIndex)));
  const Grid grid{groups_of(std::max<std::int64_t>(args.vectors, 1), kDecodeTile<Out>),
                  dim3(kDecodeThreads<Out>)};
  return launch(decode_vectors<Out, kNibble>, grid, args, bound);
}

template <class Out>
Status preload_decoding(const CodebookDecoding& decoding) {
  if (is_four_bit(decoding.input_dtype)) {
    PLANQ_TRY((preload(decode_vectors<Out, true>)));
    return preload(decode_elements<Out, true>);
  }
  PLANQ_TRY((preload(decode_vectors<Out, false>)));
  return preload(decode_elements<Out, false>);
}

template <class Out>
Status launch_decoding(const CodebookDecoding& decoding, const CodebookDecodingOperands& operands,
                       int multiprocessors, Bound& bound) {
  return is_four_bit(decoding.input_dtype)
             ? launch_decoding_of<Out, true>(decoding, operands, multiprocessors, bound)
             : launch_decoding_of<Out, false>(decoding, operands, multiprocessors, bound);
}

}  // namespace planq::cuda

// What a file of one element type instantiates.
#define PLANQ_DECODING(Out)                                                             \
  template ::planq::Status planq::cuda::preload_decoding<Out>(const CodebookDecoding&); \
  template ::planq::Status planq::cuda::launch_decoding<Out>(                           \
      const CodebookDecoding&, const CodebookDecodingOperands&, int, Bound&)
