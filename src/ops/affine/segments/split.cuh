// Segments too long for registers, or spread over many lines: one kernel finds ranges, the next one
// combines them and quantizes. A segment has `parts` blocks in both; a block's warps take pieces of
// lines in turn. The second kernel goes backwards, so that it begins with what the cache still
// holds.
//
// A segment that is one span of aligned vectors has kernels of its own: a few blocks that stay find
// ranges, one block makes parameters of them, and as many blocks as it takes write the codes.
#pragma once

#include "cuda/launch.cuh"
#include "ops/affine/heuristics_sm90.h"
#include "ops/affine/segments/segments.cuh"

namespace planq::affine {

inline constexpr int kSplitThreads = 256;
inline constexpr int kSplitWarps = kSplitThreads / cuda::kWarp;
inline constexpr int kPieceVectors = 4;  // per thread
inline constexpr int kMaxParts = 1024;
inline constexpr int kFlatThreads = 512;
inline constexpr int kFlatVectors = 4;  // per thread and turn
inline constexpr int kFlatTile = kFlatThreads * kFlatVectors;
// Blocks of a multiprocessor in the first flat kernel: all that fit.
inline constexpr int kFlatRangeBlocks = 4;

// Range of a part of a segment: of all its elements, or of the finite ones under SATURATE.
template <class In>
struct Partial {
  KeyRange<In> key_range;
  std::int32_t special;

  __device__ __forceinline__ void add(const Partial& other) {
    key_range.add(other.key_range);
    special |= other.special;
  }
};

template <class C>
struct FlatParameters {
  math::SegmentParameters<C> segment;
  bool fast;
};

template <class In>
struct SplitArgs {
  const In* input;
  std::uint8_t* output;
  void* scale;
  std::int32_t* zero_point;
  IndexSpace segments;  // in the order of the parameters
  IndexSpace lines;     // inside a segment: spans of `length` consecutive elements
  std::int64_t line_count, length;
  std::int64_t groups, tail;  // the last of `groups` segments along a row has `tail` elements
  Partial<In>* partials;      // [segment][part]
  std::int32_t parts;
  // Segments that are one aligned span:
  FlatParameters<Compute<In>>* parameters;
  std::int32_t code_parts;  // blocks of a segment in the last kernel
  bool keep;                // whether the input may stay in the cache
  bool clamps;              // whether codes need Bounds::Clamp
  math::AffineSpec<Compute<In>> spec;
  NibbleOrder order;
};

template <class In, int kWarps = kSplitWarps>
__device__ __forceinline__ Partial<In> block_partial(Partial<In> mine, bool symmetric) {
  static_assert(kWarps <= cuda::kWarp);
  __shared__ KeyOf<In> low[kWarps], high[kWarps];
  __shared__ bool special[kWarps];
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const auto over_warp = [&] {
    mine.key_range = warp_key_range(mine.key_range, symmetric);
    mine.special = __any_sync(cuda::kAllLanes, mine.special);
  };
  over_warp();
  if (lane == 0) {
    low[warp] = mine.key_range.low;
    high[warp] = mine.key_range.high;
    special[warp] = mine.special != 0;
  }
  __syncthreads();
  mine = {};
  if (lane < kWarps) mine = {{low[lane], high[lane]}, special[lane]};
  over_warp();
  return mine;
}

// What a block works on: a part of one segment, as pieces of lines.
template <class In>
struct Part {
  const In* input;
  std::uint8_t* output;
  Offsets at;
  std::int64_t segment, length, pieces_per_line, pieces;
  int part;

  __device__ __forceinline__ Part(const SplitArgs<In>& args, unsigned block) {
    segment = block / args.parts;
    part = static_cast<int>(block - static_cast<unsigned>(segment) * args.parts);
    at = args.segments.offsets(segment);
    input = args.input + at.at[kInput];
    output = args.output + at.at[kOutput];
    length = args.length;
    if (args.groups > 1 && segment % args.groups == args.groups - 1) length = args.tail;
    constexpr std::int64_t kPiece = kPieceVectors * cuda::kWarp;
    pieces_per_line = (length / kPerVector<In> + kPiece - 1) / kPiece;
    if (pieces_per_line == 0) pieces_per_line = 1;
    pieces = pieces_per_line * args.line_count;
  }
};

// A piece: the vectors first, first + 32, ... of a span for this lane, and the span's edges at its
// ends.
template <class In, Codes kCodes>
struct Piece {
  AlignedSpan<In, kCodes> span;
  std::int64_t length;
  std::int64_t index, first;
  int lane;
  bool edge;
  const In* begin;
  std::uint8_t* codes;

  __device__ __forceinline__ static Piece at(const SplitArgs<In>& args, const Part<In>& part,
                                             std::int64_t number) {
    std::int64_t line = 0;
    Offsets at{};
    if (args.line_count > 1) {
      line = number / part.pieces_per_line;
      number -= line * part.pieces_per_line;
      at = args.lines.offsets(line);
    }
    return Piece(part, part.input + at.at[kInput], part.output + at.at[kOutput], number);
  }

  __device__ __forceinline__ bool active(int k) const {
    return first + k * cuda::kWarp < span.vectors;
  }
  __device__ __forceinline__ const In* vector(int k) const {
    return span.input + (first + k * cuda::kWarp) * kPerVector<In>;
  }

 private:
  __device__ __forceinline__ Piece(const Part<In>& part, const In* input, std::uint8_t* output,
                                   std::int64_t number)
      : span(input, output, part.length),
        length(part.length),
        index(number),
        begin(input),
        codes(output) {
    lane = threadIdx.x % cuda::kWarp;
    first = number * (kPieceVectors * cuda::kWarp) + lane;
    const bool at_head = lane < kPerVector<In> && number == 0;
    const bool at_tail = lane >= kPerVector<In> && number == part.pieces_per_line - 1;
    edge = (at_head || at_tail) && span.has_edge(lane);
  }
};

// The finite elements among those of this lane.
template <class In>
__device__ __forceinline__ KeyRange<In> finite_piece(const Piece<In, Codes::Byte>& piece,
                                                     bool symmetric) {
  KeyRange<In> key_range;
#pragma unroll 1
  for (int i = 0; i < kPieceVectors * kPerVector<In>; ++i) {
    const int k = i / kPerVector<In>;
    if (!piece.active(k)) break;
    const KeyOf<In> key = key_of(piece.vector(k)[i % kPerVector<In>], symmetric);
    if (!is_special<In>(key)) key_range.add(key);
  }
  if (piece.edge) {
    const KeyOf<In> key = key_of(*piece.span.edge(piece.lane), symmetric);
    if (!is_special<In>(key)) key_range.add(key);
  }
  return key_range;
}

template <class In>
__global__ void __launch_bounds__(kSplitThreads)
    split_ranges(const __grid_constant__ SplitArgs<In> args) {
  cuda::let_dependents_start();
  const bool symmetric = args.spec.mode == Mode::Symmetric;
  const bool saturate = args.spec.nonfinite == NonFinite::Saturate;
  const Part<In> part(args, blockIdx.x);
  Partial<In> mine{};
#pragma unroll 1
  for (std::int64_t p = part.part * kSplitWarps + threadIdx.x / cuda::kWarp; p < part.pieces;
       p += args.parts * kSplitWarps) {
    const auto piece = Piece<In, Codes::Byte>::at(args, part, p);
    uint4 v[kPieceVectors];
#pragma unroll
    for (int k = 0; k < kPieceVectors; ++k)
      if (piece.active(k)) v[k] = cuda::load_kept(piece.vector(k));
    Collector<In> collector;
#pragma unroll
    for (int k = 0; k < kPieceVectors; ++k)
      if (piece.active(k)) symmetric ? collector.add_magnitudes(v[k]) : collector.add_ordered(v[k]);
    KeyRange<In> key_range = collector.key_range();
    if (piece.edge) key_range.add(key_of(*piece.span.edge(piece.lane), symmetric));
    const bool special = key_range.special();
    if (special && saturate) key_range = finite_piece(piece, symmetric);
    mine.add({key_range, special});
  }
  mine = block_partial(mine, symmetric);
  if (threadIdx.x == 0) args.partials[blockIdx.x] = mine;
}

template <class In, Codes kCodes>
__global__ void __launch_bounds__(kSplitThreads)
    split_codes(const __grid_constant__ SplitArgs<In> args) {
  using C = Compute<In>;
  const bool symmetric = args.spec.mode == Mode::Symmetric;
  const Part<In> part(args, gridDim.x - 1 - blockIdx.x);
  cuda::wait_for_previous();
  Partial<In> all{};
#pragma unroll 1
  for (int i = threadIdx.x; i < args.parts; i += kSplitThreads)
    all.add(args.partials[part.segment * args.parts + i]);
  all = block_partial(all, symmetric);
  const math::Range<C> range = range_of(all.key_range, symmetric, all.special != 0);
  const math::SegmentParameters<C> parameters = math::segment_parameters(args.spec, range);
  if (part.part == 0 && threadIdx.x == 0) {
    store_scale(args.scale, part.at.at[kScale], parameters.scale, args.spec.scale_dtype);
    if (!symmetric)
      cuda::store_once(args.zero_point + part.at.at[kZeroPoint], parameters.zero_point);
  }
  const bool fast = is_fast(args.spec, parameters, range);
  const Numbers<C> numbers(parameters, args.spec);
#pragma unroll 1
  for (std::int64_t p = part.part * kSplitWarps + threadIdx.x / cuda::kWarp; p < part.pieces;
       p += args.parts * kSplitWarps) {
    const auto piece = Piece<In, kCodes>::at(args, part, part.pieces - 1 - p);
    if (!fast || !piece.span.whole) {
      // Pieces of elements here, not of vectors: they begin on a byte whatever the alignment.
      constexpr std::int64_t kPiece = kPieceVectors * cuda::kWarp * kPerVector<In>;
      const std::int64_t begin = piece.index * kPiece;
      const bool last = piece.index == part.pieces_per_line - 1;
      const std::int64_t count = last ? piece.length - begin : kPiece;
      walk_codes<In, kCodes>(piece.begin + begin, piece.codes + begin / kPerByte<kCodes>, count,
                             args.spec, parameters, args.order, piece.lane, cuda::kWarp);
      continue;
    }
    uint4 v[kPieceVectors];
#pragma unroll
    for (int k = 0; k < kPieceVectors; ++k)
      if (piece.active(k)) v[k] = cuda::load_once(piece.vector(k));
    constexpr int kBytes = kWordBytes<In, kCodes>;
#pragma unroll 1
    for (int k = 0; k < kPieceVectors; ++k) {
      const std::int64_t i = piece.first + k * cuda::kWarp;
      const auto word = encode_by_any_rule<In, kCodes>(v[0], numbers, args.spec, args.order);
      std::uint8_t* to = piece.span.output + i * kBytes;
      if (piece.span.shift != 0) {
        const std::int64_t left = piece.span.vectors - 1 - (i - piece.lane);
        const int last = left < 0 ? -1 : left > 31 ? 31 : static_cast<int>(left);
        cuda::store_unaligned<kBytes>(to, word, piece.span.shift, piece.lane, last, cuda::kWarp);
      } else if (piece.active(k)) {
        cuda::store_word<kBytes>(to, word);
      }
      move_down(v);
    }
    std::uint8_t code = 0;
    if (piece.edge)
      code = code_of<kCodes>(math::widen(*piece.span.edge(piece.lane)), args.spec, parameters);
    piece.span.store_edge(piece.lane, piece.edge, code, args.order);
  }
}

// --- Segments that are one span of aligned vectors ---------------------------------------------

// Where a block stands in such a segment.
template <class In>
struct FlatPlace {
  Offsets at;
  std::int64_t segment;
  std::uint32_t part, count;  // `count` vectors in the segment

  __device__ __forceinline__ FlatPlace(const SplitArgs<In>& args, unsigned block,
                                       std::int32_t parts) {
    std::int64_t length = args.length;
    segment = 0;
    part = block;
    at = {};
    if (args.segments.rank > 0) {  // more than one segment
      const unsigned index = block / static_cast<unsigned>(parts);
      segment = index;
      part = block - index * parts;
      at = args.segments.offsets(segment);
      if (args.groups > 1 && segment % args.groups == args.groups - 1) length = args.tail;
    }
    count = static_cast<std::uint32_t>(static_cast<std::uint64_t>(length) / kPerVector<In>);
  }
};

// Adds the finite elements of vector `i`.
template <class In>
__device__ __forceinline__ void add_finite(const In* input, std::uint32_t i, bool symmetric,
                                           KeyRange<In>& key_range) {
#pragma unroll 1
  for (int j = 0; j < kPerVector<In>; ++j)
    add_element(key_range, input[static_cast<std::int64_t>(i) * kPerVector<In> + j], symmetric,
                true);
}

// The finite elements of the vectors first, first + kFlatThreads, ... of every step-th tile.
template <class In>
__device__ __noinline__ KeyRange<In> finite_tiles(const In* input, std::uint32_t first,
                                                  std::uint32_t step, std::uint32_t count,
                                                  bool symmetric) {
  KeyRange<In> key_range;
#pragma unroll 1
  for (std::uint32_t tile = first; tile < count; tile += step) {
#pragma unroll 1
    for (std::uint32_t i = tile; i < min(tile + kFlatTile, count); i += kFlatThreads)
      add_finite(input, i, symmetric, key_range);
  }
  return key_range;
}

template <class In, bool kKeep>
__device__ __forceinline__ KeyRange<In> tile_key_range(const uint4* from, std::uint32_t first,
                                                       std::uint32_t step, std::uint32_t count,
                                                       bool symmetric) {
  Collector<In> collector;
#pragma unroll 1
  for (std::uint32_t i = first; i < count; i += step) {
    // Past the end the last vector comes again, which changes no maximum.
    uint4 v[kFlatVectors];
#pragma unroll
    for (int k = 0; k < kFlatVectors; ++k) {
      const uint4* vector = from + min(i + k * kFlatThreads, count - 1);
      v[k] = kKeep ? cuda::load_kept(vector) : cuda::load_once(vector);
    }
    if (symmetric) {
#pragma unroll
      for (int k = 0; k < kFlatVectors; ++k) collector.add_magnitudes(v[k]);
    } else {
#pragma unroll
      for (int k = 0; k < kFlatVectors; ++k) collector.add_ordered(v[k]);
    }
  }
  return collector.key_range();
}

template <class In>
__global__ void __launch_bounds__(kFlatThreads,
                                  cuda::fitting_blocks(kFlatThreads, kFlatRangeBlocks))
    flat_ranges(const __grid_constant__ SplitArgs<In> args) {
  cuda::let_dependents_start();
  const bool symmetric = args.spec.mode == Mode::Symmetric;
  const FlatPlace<In> place(args, blockIdx.x, args.parts);
  const In* input = args.input + place.at.at[kInput];
  const auto* from = reinterpret_cast<const uint4*>(input);
  const std::uint32_t first = place.part * kFlatTile + threadIdx.x;
  const std::uint32_t step = static_cast<std::uint32_t>(args.parts) * kFlatTile;
  Partial<In> mine{};
  mine.key_range = args.keep ? tile_key_range<In, true>(from, first, step, place.count, symmetric)
                             : tile_key_range<In, false>(from, first, step, place.count, symmetric);
  if (mine.key_range.special()) {
    mine.special = 1;
    if (args.spec.nonfinite == NonFinite::Saturate)
      mine.key_range = finite_tiles(input, first, step, place.count, symmetric);
  }
  mine = block_partial<In, kFlatThreads / cuda::kWarp>(mine, symmetric);
  if (threadIdx.x == 0) args.partials[blockIdx.x] = mine;
}

// Parameters of a segment from its parts; one block a segment.
template <class In>
__global__ void __launch_bounds__(kFlatThreads)
    flat_parameters(const __grid_constant__ SplitArgs<In> args) {
  cuda::let_dependents_start();
  cuda::wait_for_previous();
  const bool symmetric = args.spec.mode == Mode::Symmetric;
  const std::int64_t segment = blockIdx.x;
  const Partial<In>* partials = args.partials + segment * args.parts;
  Partial<In> all{};
#pragma unroll 2
  for (int i = threadIdx.x; i < args.parts; i += kFlatThreads) all.add(partials[i]);
  all = block_partial<In, kFlatThreads / cuda::kWarp>(all, symmetric);
  if (threadIdx.x != 0) return;
  const auto range = range_of(all.key_range, symmetric, all.special != 0);
  const auto parameters = math::segment_parameters(args.spec, range);
  args.parameters[segment] = {parameters, is_fast(args.spec, parameters, range)};
  const Offsets at = args.segments.offsets(segment);
  store_scale(args.scale, at.at[kScale], parameters.scale, args.spec.scale_dtype);
  if (!symmetric) cuda::store_once(args.zero_point + at.at[kZeroPoint], parameters.zero_point);
}

template <class In, Codes kCodes>
__device__ __noinline__ void walk_tile(const SplitArgs<In>& args, const In* input,
                                       std::uint8_t* output, std::uint32_t first,
                                       std::uint32_t count,
                                       const math::SegmentParameters<Compute<In>>& parameters) {
  const std::int64_t vectors = min(count - first, static_cast<std::uint32_t>(kFlatTile));
  walk_codes<In, kCodes>(input + static_cast<std::int64_t>(first) * kPerVector<In>,
                         output + static_cast<std::int64_t>(first) * kWordBytes<In, kCodes>,
                         vectors * kPerVector<In>, args.spec, parameters, args.order, threadIdx.x,
                         kFlatThreads);
}

// A tile of a segment; the last tiles come first.
template <class In, Codes kCodes, Variant kVariant, bool kAsymmetric>
__global__ void __launch_bounds__(kFlatThreads, sizeof(In) == 8 ? 2 : 3)
    flat_codes(const __grid_constant__ SplitArgs<In> args) {
  const FlatPlace<In> place(args, gridDim.x - 1 - blockIdx.x, args.code_parts);
  const In* input = args.input + place.at.at[kInput];
  std::uint8_t* output = args.output + place.at.at[kOutput];
  const std::uint32_t tile = place.part * kFlatTile;
  if (tile >= place.count) return;  // a shorter last segment has fewer tiles
  uint4 v[kFlatVectors];
#pragma unroll
  for (int k = 0; k < kFlatVectors; ++k)
    v[k] = cuda::load_once(reinterpret_cast<const uint4*>(input) +
                           min(tile + threadIdx.x + k * kFlatThreads, place.count - 1));
  cuda::wait_for_previous();  // the input does not depend on the kernels before this one
  const FlatParameters<Compute<In>>& parameters = args.parameters[place.segment];
  if (!parameters.fast) {
    walk_tile<In, kCodes>(args, input, output, tile, place.count, parameters.segment);
    return;
  }
  const Numbers<Compute<In>> numbers(parameters.segment, args.spec);
  auto* words = reinterpret_cast<cuda::Word<kWordBytes<In, kCodes>>*>(output);
  by_variant<kVariant, kCodes, kAsymmetric>(args, [&](auto divides, auto bounds) {
#pragma unroll
    for (int k = 0; k < kFlatVectors; ++k) {
      const std::uint32_t i = tile + threadIdx.x + k * kFlatThreads;
      const auto word = encode<In, kCodes, kAsymmetric, divides.value, bounds.value>(
          v[k], numbers, args.spec, args.order);
      if (i < place.count) cuda::store_once(words + i, word);
    }
  });
}

}  // namespace planq::affine
