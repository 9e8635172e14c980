// What a kernel knows of its segments, and the walk: element by element, whatever the alignment and
// the numbers. The vector kernels hand over to it what they do not cover.
#pragma once

#include "cuda/divider.cuh"
#include "cuda/lines.cuh"
#include "ops/affine/segments/encode.cuh"

namespace planq::affine {

// Positions in the spaces of a launch: what a step along an axis moves in.
enum QuantizeOperand : int { kInput, kOutput, kScale, kZeroPoint };

// The last of `pieces` segments along an axis, which are `divisor` segments apart, has another
// size.
struct Tail {
  std::int64_t pieces = 1, divisor = 1, size = 0;

  __device__ __forceinline__ bool holds(std::int64_t segment) const {
    return pieces > 1 && segment / divisor % pieces == pieces - 1;
  }
};

// Segments of consecutive elements. The operands of `segments` are by QuantizeOperand.
template <class In>
struct SegmentArgs {
  const In* input;
  std::uint8_t* output;
  void* scale;
  std::int32_t* zero_point;
  cuda::IndexSpace32 segments;  // one index per segment, in the order of the parameters
  std::uint32_t count;
  // The last of `groups` segments along a row has `tail` elements.
  cuda::Divider groups;
  std::int64_t length, tail;
  math::AffineSpec<Compute<In>> spec;
  NibbleOrder order;
};

template <class In>
struct Segment {
  const In* input;
  std::uint8_t* output;
  std::int64_t length;
  std::int64_t scale, zero_point;  // element offsets

  __device__ __forceinline__ Segment(const SegmentArgs<In>& args, std::uint32_t index) {
    const Offsets at = args.segments.offsets(index);
    input = args.input + at.at[kInput];
    output = args.output + at.at[kOutput];
    scale = at.at[kScale];
    zero_point = at.at[kZeroPoint];
    length = args.length;
    if (args.tail != args.length) {
      const std::uint32_t groups = args.groups.divisor;
      if (index - args.groups.quotient(index) * groups == groups - 1) length = args.tail;
    }
  }
};

// math::store_scale as streamed traffic.
template <class C>
__device__ __forceinline__ void store_scale(void* scales, std::int64_t index, C scale,
                                            DType dtype) {
  math::put_scale(scale, dtype, [&](auto stored) {
    cuda::store_single(static_cast<decltype(stored)*>(scales) + index, stored);
  });
}

template <class In>
__device__ __forceinline__ void store_parameters(
    const SegmentArgs<In>& args, const Segment<In>& segment,
    const math::SegmentParameters<Compute<In>>& parameters) {
  store_scale(args.scale, segment.scale, parameters.scale, args.spec.scale_dtype);
  if (args.spec.mode == Mode::Asymmetric)
    cuda::store_once(args.zero_point + segment.zero_point, parameters.zero_point);
}

// Range of the finite elements rank, rank + team, ... of a span.
template <class In>
__device__ __forceinline__ KeyRange<In> walk_finite(const In* input, std::int64_t length, int rank,
                                                    int team, bool symmetric) {
  KeyRange<In> key_range;
#pragma unroll 1
  for (std::int64_t i = rank; i < length; i += team)
    add_element(key_range, input[i], symmetric, true);
  return key_range;
}

// The byte of codes that begins with element `first` of a span.
template <class In, Codes kCodes>
__device__ __forceinline__ std::uint8_t byte_of_codes(
    const In* input, std::int64_t first, std::int64_t length,
    const math::AffineSpec<Compute<In>>& spec,
    const math::SegmentParameters<Compute<In>>& parameters, NibbleOrder order) {
  std::uint8_t codes[2] = {0, 0};
#pragma unroll 1
  for (int j = 0; j < kPerByte<kCodes>; ++j) {
    if (first + j >= length) break;
    const std::uint8_t code = code_of<kCodes>(math::widen(input[first + j]), spec, parameters);
    (j == 0 ? codes[0] : codes[1]) = code;
  }
  return kCodes == Codes::Nibble ? math::pack_nibbles(codes[0], codes[1], order) : codes[0];
}

// The bytes rank, rank + team, ... of a span's codes.
template <class In, Codes kCodes>
__device__ __forceinline__ void walk_codes(const In* input, std::uint8_t* output,
                                           std::int64_t length,
                                           const math::AffineSpec<Compute<In>>& spec,
                                           const math::SegmentParameters<Compute<In>>& parameters,
                                           NibbleOrder order, int rank, int team) {
#pragma unroll 1
  for (std::int64_t i = rank; i * kPerByte<kCodes> < length; i += team)
    output[i] =
        byte_of_codes<In, kCodes>(input, i * kPerByte<kCodes>, length, spec, parameters, order);
}

// --- Spans of consecutive elements -------------------------------------------------------------

// A line of elements, and where the codes of its vectors are. Only bytes of the line are touched.
template <class In, Codes kCodes>
struct AlignedSpan : cuda::AlignedLine<In> {
  using cuda::AlignedLine<In>::head;
  using cuda::AlignedLine<In>::vectors;
  std::uint8_t* output;  // where the codes of the vectors begin
  int shift;             // bytes by which `output` is past the alignment of a word
  bool whole;            // the vectors begin on a byte of the output

  __device__ __forceinline__ AlignedSpan(const In* from, std::uint8_t* to, std::int64_t length)
      : cuda::AlignedLine<In>(from, length) {
    output = to + head / kPerByte<kCodes>;
    whole = head % kPerByte<kCodes> == 0;
    shift = cuda::misalignment<kWordBytes<In, kCodes>>(output);
  }

  // A tail is shorter than a vector, so it needs no bound of its own here.
  __device__ __forceinline__ bool has_edge(int rank) const {
    return rank < kPerVector<In> ? rank < head : rank - kPerVector<In> < this->tail;
  }
  // All lanes of the warp call this; `code` is 0 where there is no edge.
  __device__ __forceinline__ void store_edge(int rank, bool edge, std::uint8_t code,
                                             NibbleOrder order) const {
    std::uint8_t* first =
        rank < kPerVector<In> ? output : output + vectors * kWordBytes<In, kCodes>;
    int at = rank < kPerVector<In> ? rank - head : rank - kPerVector<In>;
    if constexpr (kCodes == Codes::Nibble) {
      const auto next = static_cast<std::uint8_t>(
          __shfl_down_sync(cuda::kAllLanes, static_cast<unsigned>(code), 1));
      code = math::pack_nibbles(code, next, order);
      edge = edge && rank % 2 == 0;
      at /= 2;
    }
    if (edge) first[at] = code;
  }
};

}  // namespace planq::affine
