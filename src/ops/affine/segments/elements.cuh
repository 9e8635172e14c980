// Any descriptor over any strides, one element at a time: where segments consist of scattered
// lines, or share bytes with their neighbours.
#pragma once

#include "core/elementwise.h"
#include "cuda/launch.cuh"
#include "ops/affine/segments/split.cuh"

namespace planq::affine {

template <class In>
struct ElementArgs {
  const In* input;
  std::uint8_t* output;
  void* scale;
  std::int32_t* zero_point;
  IndexSpace segments;  // in the order of the parameters
  IndexSpace lines;     // inside a segment: spans of `length` consecutive elements
  std::int64_t count, line_count, length;
  Tail tail, line_tail;  // of the elements of a line, and of the lines
  // The tensor as rows of `row_length`, by core/elementwise.h; its scale is here an index of
  // `parameters`, which moves within a row by `row_step` for every `row_divisor` elements.
  IndexSpaceOf<kElementOperands> rows;
  std::int64_t row_count, row_length, row_step, row_divisor;
  math::SegmentParameters<Compute<In>>* parameters;
  math::AffineSpec<Compute<In>> spec;
  NibbleOrder order;
};

template <class In>
struct ScatteredSegment {
  Offsets at;
  std::int64_t line_count, length;

  __device__ __forceinline__ ScatteredSegment(const ElementArgs<In>& args, std::int64_t index) {
    at = args.segments.offsets(index);
    line_count = args.line_count;
    length = args.length;
    if (args.tail.holds(index)) length = args.tail.size;
    if (args.line_tail.holds(index)) line_count = args.line_tail.size;
  }
};

template <class In>
__device__ __forceinline__ math::SegmentParameters<Compute<In>> scattered_parameters(
    const ElementArgs<In>& args, const ScatteredSegment<In>& segment) {
  const bool symmetric = args.spec.mode == Mode::Symmetric;
  const bool saturate = args.spec.nonfinite == NonFinite::Saturate;
  const std::int64_t count = segment.line_count * segment.length;
  Partial<In> mine{};
#pragma unroll 1
  for (std::int64_t i = threadIdx.x; i < count; i += kSplitThreads) {
    const std::int64_t line = i / segment.length;
    const std::int64_t at = args.lines.offsets(line).at[kInput] + (i - line * segment.length);
    const KeyOf<In> key = key_of(args.input[segment.at.at[kInput] + at], symmetric);
    const bool special = is_special<In>(key);
    mine.special |= special;
    if (!(special && saturate)) mine.key_range.add(key);
  }
  mine = block_partial(mine, symmetric);
  const auto range = range_of(mine.key_range, symmetric, mine.special != 0);
  const auto parameters = math::segment_parameters(args.spec, range);
  if (threadIdx.x == 0) {
    store_scale(args.scale, segment.at.at[kScale], parameters.scale, args.spec.scale_dtype);
    if (!symmetric)
      cuda::store_once(args.zero_point + segment.at.at[kZeroPoint], parameters.zero_point);
  }
  return parameters;
}

// A block per segment of several lines: both sweeps.
template <class In, Codes kCodes>
__global__ void __launch_bounds__(kSplitThreads)
    quantize_lines(const __grid_constant__ ElementArgs<In> args) {
  const ScatteredSegment<In> segment(args, blockIdx.x);
  const auto parameters = scattered_parameters(args, segment);
  const std::int64_t line_bytes = (segment.length + kPerByte<kCodes> - 1) / kPerByte<kCodes>;
#pragma unroll 1
  for (std::int64_t i = threadIdx.x; i < segment.line_count * line_bytes; i += kSplitThreads) {
    const std::int64_t line = i / line_bytes, byte = i - line * line_bytes;
    const Offsets at = args.lines.offsets(line);
    args.output[segment.at.at[kOutput] + at.at[kOutput] + byte] = byte_of_codes<In, kCodes>(
        args.input + segment.at.at[kInput] + at.at[kInput], byte * kPerByte<kCodes>, segment.length,
        args.spec, parameters, args.order);
  }
}

// A block per segment: parameters only.
template <class In>
__global__ void __launch_bounds__(kSplitThreads)
    element_ranges(const __grid_constant__ ElementArgs<In> args) {
  cuda::let_dependents_start();
#pragma unroll 1
  for (std::int64_t index = blockIdx.x; index < args.count; index += gridDim.x) {
    const auto parameters = scattered_parameters(args, ScatteredSegment<In>(args, index));
    if (threadIdx.x == 0) args.parameters[index] = parameters;
    __syncthreads();
  }
}

// A thread per byte of the output.
template <class In, Codes kCodes>
__global__ void __launch_bounds__(kSplitThreads)
    element_codes(const __grid_constant__ ElementArgs<In> args) {
  const std::int64_t row_bytes = (args.row_length + kPerByte<kCodes> - 1) / kPerByte<kCodes>;
  cuda::wait_for_previous();
#pragma unroll 1
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kSplitThreads + threadIdx.x;
       i < args.row_count * row_bytes; i += static_cast<std::int64_t>(gridDim.x) * kSplitThreads) {
    const std::int64_t row = i / row_bytes, byte = i - row * row_bytes;
    const ElementOffsets at = args.rows.offsets(row);
    std::uint8_t codes[2] = {0, 0};
#pragma unroll 1
    for (int j = 0; j < kPerByte<kCodes>; ++j) {
      const std::int64_t column = byte * kPerByte<kCodes> + j;
      if (column >= args.row_length) break;
      const std::int64_t parameter =
          at.at[kElementScale] + column / args.row_divisor * args.row_step;
      const std::uint8_t code = code_of<kCodes>(math::widen(args.input[at.at[kInput] + column]),
                                                args.spec, args.parameters[parameter]);
      (j == 0 ? codes[0] : codes[1]) = code;
    }
    args.output[at.at[kOutput] / kPerByte<kCodes> + byte] =
        kCodes == Codes::Nibble ? math::pack_nibbles(codes[0], codes[1], args.order) : codes[0];
  }
}

}  // namespace planq::affine
