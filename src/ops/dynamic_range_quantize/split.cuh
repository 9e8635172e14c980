// Segments too long for registers, or spread over many lines: one kernel finds ranges, the next one
// combines them and quantizes. A segment has `parts` blocks in both; a block's warps take pieces of
// lines in turn. The second kernel goes backwards, so that it begins with what the cache still
// holds. A segment that is one run of aligned vectors has kernels of its own, with nothing but the
// loop.
#pragma once

#include "cuda/launch.cuh"
#include "ops/dynamic_range_quantize/segments.cuh"

namespace planq::dynamic_range_quantize {

inline constexpr int kSplitThreads = 256;
inline constexpr int kSplitWarps = kSplitThreads / cuda::kWarp;
inline constexpr int kPieceVectors = 4;  // per thread
inline constexpr int kMaxParts = 1024;
inline constexpr int kFlatVectors = 4;  // per thread and turn, in the second kernel
inline constexpr int kFlatRangeThreads = 512;
// Blocks of a multiprocessor: what the registers of these kernels leave room for.
inline constexpr int kFlatRangeBlocks = 3;
template <class In>
inline constexpr int kFlatCodeBlocks = sizeof(In) == 8 ? 3 : 4;
// Beyond this the second pass finds little in the cache. Fewer blocks, evenly spread because they
// wait for an idle GPU, then keep the memory busier than an early start of many does.
inline constexpr std::int64_t kLargeVectors = std::int64_t{1} << 22;
inline constexpr int kLargeCodeBlocks = 2;

// Range of a part of a segment: of all its elements, or of the finite ones under SATURATE.
template <class In>
struct Partial {
  Extent<In> extent;
  std::int32_t special;

  __device__ __forceinline__ void add(const Partial& other) {
    extent.add(other.extent);
    special |= other.special;
  }
};

template <class In>
struct SplitArgs {
  const In* input;
  std::uint8_t* output;
  void* scale;
  std::int32_t* zero_point;
  Space segments;  // in the order of the parameters
  Space lines;     // inside a segment: runs of `length` consecutive elements
  std::int64_t line_count, length;
  std::int64_t groups, tail;  // the last of `groups` segments along a row has `tail` elements
  Partial<In>* partials;      // [segment][part]
  std::int32_t parts;
  std::int32_t code_parts;  // of a segment that is one aligned run, in the second kernel
  math::AffineRecipe<Compute<In>> recipe;
  NibbleOrder order;
};

template <class In, int kWarps = kSplitWarps>
__device__ __forceinline__ Partial<In> block_partial(Partial<In> mine, bool symmetric) {
  __shared__ Partial<In> partials[kWarps];
  const int lane = threadIdx.x % cuda::kWarp;
  mine.extent = warp_extent(mine.extent, symmetric);
  mine.special = __any_sync(cuda::kAllLanes, mine.special);
  if (lane == 0) partials[threadIdx.x / cuda::kWarp] = mine;
  __syncthreads();
  Partial<In> all{};
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) all.add(partials[warp]);
  return all;
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

// A piece: the vectors first, first + 32, ... of a run for this lane, and the run's edges at its
// ends.
template <class In, Codes kCodes>
struct Piece {
  Run<In, kCodes> run;
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
    return first + k * cuda::kWarp < run.vectors;
  }
  __device__ __forceinline__ const In* vector(int k) const {
    return run.input + (first + k * cuda::kWarp) * kPerVector<In>;
  }

 private:
  __device__ __forceinline__ Piece(const Part<In>& part, const In* input, std::uint8_t* output,
                                   std::int64_t number)
      : run(input, output, part.length),
        length(part.length),
        index(number),
        begin(input),
        codes(output) {
    lane = threadIdx.x % cuda::kWarp;
    first = number * (kPieceVectors * cuda::kWarp) + lane;
    const bool at_head = lane < kPerVector<In> && number == 0;
    const bool at_tail = lane >= kPerVector<In> && number == part.pieces_per_line - 1;
    edge = (at_head || at_tail) && run.has_edge(lane);
  }
};

// The finite elements among those of this lane.
template <class In>
__device__ __forceinline__ Extent<In> finite_piece(const Piece<In, Codes::Byte>& piece,
                                                   bool symmetric) {
  Extent<In> extent;
#pragma unroll 1
  for (int i = 0; i < kPieceVectors * kPerVector<In>; ++i) {
    const int k = i / kPerVector<In>;
    if (!piece.active(k)) break;
    const KeyOf<In> key = key_of(piece.vector(k)[i % kPerVector<In>], symmetric);
    if (!is_special<In>(key)) extent.add(key);
  }
  if (piece.edge) {
    const KeyOf<In> key = key_of(*piece.run.edge_input(piece.lane), symmetric);
    if (!is_special<In>(key)) extent.add(key);
  }
  return extent;
}

template <class In>
__global__ void __launch_bounds__(kSplitThreads)
    split_ranges(const __grid_constant__ SplitArgs<In> args) {
  cuda::let_dependents_start();
  const bool symmetric = args.recipe.mode == Mode::Symmetric;
  const bool saturate = args.recipe.nonfinite == NonFinite::Saturate;
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
    Extent<In> extent = collector.extent();
    if (piece.edge) extent.add(key_of(*piece.run.edge_input(piece.lane), symmetric));
    const bool special = extent.special();
    if (special && saturate) extent = finite_piece(piece, symmetric);
    mine.add({extent, special});
  }
  mine = block_partial(mine, symmetric);
  if (threadIdx.x == 0) args.partials[blockIdx.x] = mine;
}

template <class In, Codes kCodes>
__global__ void __launch_bounds__(kSplitThreads)
    split_codes(const __grid_constant__ SplitArgs<In> args) {
  using C = Compute<In>;
  const bool symmetric = args.recipe.mode == Mode::Symmetric;
  const Part<In> part(args, gridDim.x - 1 - blockIdx.x);
  cuda::wait_for_previous();
  Partial<In> all{};
#pragma unroll 1
  for (int i = threadIdx.x; i < args.parts; i += kSplitThreads)
    all.add(args.partials[part.segment * args.parts + i]);
  all = block_partial(all, symmetric);
  const math::Range<C> range = range_of(all.extent, symmetric, all.special != 0);
  const math::SegmentParameters<C> parameters = math::segment_parameters(args.recipe, range);
  if (part.part == 0 && threadIdx.x == 0) {
    math::store_scale(args.scale, part.at.at[kScale], parameters.scale, args.recipe.scale_dtype);
    if (!symmetric) args.zero_point[part.at.at[kZeroPoint]] = parameters.zero_point;
  }
  const bool fast = is_fast(args.recipe, parameters, range);
#pragma unroll 1
  for (std::int64_t p = part.part * kSplitWarps + threadIdx.x / cuda::kWarp; p < part.pieces;
       p += args.parts * kSplitWarps) {
    const auto piece = Piece<In, kCodes>::at(args, part, part.pieces - 1 - p);
    if (!fast || !piece.run.whole) {
      // Pieces of elements here, not of vectors: they begin on a byte whatever the alignment.
      constexpr std::int64_t kPiece = kPieceVectors * cuda::kWarp * kPerVector<In>;
      const std::int64_t begin = piece.index * kPiece;
      const bool last = piece.index == part.pieces_per_line - 1;
      const std::int64_t count = last ? piece.length - begin : kPiece;
      walk_codes<In, kCodes>(piece.begin + begin,
                             piece.codes + begin / (kCodes == Codes::Nibble ? 2 : 1), count,
                             args.recipe, parameters, args.order, piece.lane, cuda::kWarp);
      continue;
    }
    uint4 v[kPieceVectors];
#pragma unroll
    for (int k = 0; k < kPieceVectors; ++k)
      if (piece.active(k)) v[k] = cuda::load_once(piece.vector(k));
    by_rule(args.recipe.quotient, [&](auto divide) {
      constexpr int kBytes = kWordBytes<In, kCodes>;
#pragma unroll
      for (int k = 0; k < kPieceVectors; ++k) {
        const std::int64_t i = piece.first + k * cuda::kWarp;
        const auto word =
            encode<In, kCodes, divide.value>(v[k], parameters, args.recipe, args.order);
        std::uint8_t* to = piece.run.output + i * kBytes;
        if (piece.run.shift != 0) {
          const std::int64_t left = piece.run.vectors - 1 - (i - piece.lane);
          const int last = left < 0 ? -1 : left > 31 ? 31 : static_cast<int>(left);
          cuda::store_shifted<kBytes>(to, word, piece.run.shift, piece.lane, last, cuda::kWarp);
        } else if (piece.active(k)) {
          cuda::store_word<kBytes>(to, word);
        }
      }
    });
    std::uint8_t code = 0;
    if (piece.edge)
      code = math::code_of(math::widen(*piece.run.edge_input(piece.lane)), args.recipe, parameters);
    piece.run.store_edge(piece.lane, piece.edge, code, args.order);
  }
}

// --- Segments that are one run of aligned vectors ----------------------------------------------

// A part of such a segment: the vectors first, first + step, ... below count for this thread.
template <class In, int kThreads>
struct FlatPart {
  Offsets at;
  std::int64_t segment;
  std::uint32_t part, count, first, step;

  __device__ __forceinline__ FlatPart(const SplitArgs<In>& args, unsigned block,
                                      std::int32_t parts) {
    const unsigned index = parts == 1 ? block : block / static_cast<unsigned>(parts);
    segment = index;
    part = block - index * parts;
    at = args.segments.offsets(segment);
    std::int64_t length = args.length;
    if (args.groups > 1 && segment % args.groups == args.groups - 1) length = args.tail;
    count = static_cast<std::uint32_t>(static_cast<std::uint64_t>(length) / kPerVector<In>);
    first = part * kThreads + threadIdx.x;
    step = static_cast<std::uint32_t>(parts) * kThreads;
  }
};

// The finite elements of the vectors first, first + step, ... below count.
template <class In>
__device__ __forceinline__ Extent<In> finite_vectors(const In* input, std::uint32_t first,
                                                     std::uint32_t step, std::uint32_t count,
                                                     bool symmetric) {
  Extent<In> extent;
#pragma unroll 1
  for (std::uint32_t i = first; i < count; i += step) {
#pragma unroll 1
    for (int j = 0; j < kPerVector<In>; ++j) {
      const KeyOf<In> key =
          key_of(input[static_cast<std::int64_t>(i) * kPerVector<In> + j], symmetric);
      if (!is_special<In>(key)) extent.add(key);
    }
  }
  return extent;
}

template <class In>
__global__ void __launch_bounds__(kFlatRangeThreads, kFlatRangeBlocks)
    flat_ranges(const __grid_constant__ SplitArgs<In> args) {
  cuda::let_dependents_start();
  const bool symmetric = args.recipe.mode == Mode::Symmetric;
  const FlatPart<In, kFlatRangeThreads> part(args, blockIdx.x, args.parts);
  const In* input = args.input + part.at.at[kInput];
  const auto* from = reinterpret_cast<const uint4*>(input);
  Collector<In> collector;
#pragma unroll 1
  for (std::uint32_t i = part.first; i < part.count; i += kPieceVectors * part.step) {
    // Past the end the last vector comes again, which changes no maximum.
    uint4 v[kPieceVectors];
#pragma unroll
    for (int k = 0; k < kPieceVectors; ++k)
      v[k] = cuda::load_kept(from + min(i + k * part.step, part.count - 1));
    if (symmetric) {
#pragma unroll
      for (int k = 0; k < kPieceVectors; ++k) collector.add_magnitudes(v[k]);
    } else {
#pragma unroll
      for (int k = 0; k < kPieceVectors; ++k) collector.add_ordered(v[k]);
    }
  }
  Partial<In> mine{collector.extent(), 0};
  if (mine.extent.special()) {
    mine.special = 1;
    if (args.recipe.nonfinite == NonFinite::Saturate)
      mine.extent = finite_vectors(input, part.first, part.step, part.count, symmetric);
  }
  mine = block_partial<In, kFlatRangeThreads / cuda::kWarp>(mine, symmetric);
  if (threadIdx.x == 0) args.partials[blockIdx.x] = mine;
}

template <class C>
struct FlatParameters {
  math::SegmentParameters<C> segment;
  bool fast;
};

// Parameters of a segment from its parts. The whole block calls this.
template <class In>
__device__ __forceinline__ FlatParameters<Compute<In>> flat_parameters(const SplitArgs<In>& args,
                                                                       std::int64_t segment) {
  __shared__ FlatParameters<Compute<In>> shared;
  const bool symmetric = args.recipe.mode == Mode::Symmetric;
  const Partial<In>* partials = args.partials + segment * args.parts;
  Partial<In> all{};
#pragma unroll 2
  for (int i = threadIdx.x; i < args.parts; i += kSplitThreads) all.add(partials[i]);
  all = block_partial(all, symmetric);
  if (threadIdx.x == 0) {
    const auto range = range_of(all.extent, symmetric, all.special != 0);
    const auto parameters = math::segment_parameters(args.recipe, range);
    shared = {parameters, is_fast(args.recipe, parameters, range)};
  }
  __syncthreads();
  return shared;
}

template <class In, Codes kCodes>
__global__ void __launch_bounds__(kSplitThreads, kFlatCodeBlocks<In>)
    flat_codes(const __grid_constant__ SplitArgs<In> args) {
  constexpr int kBytes = kWordBytes<In, kCodes>;
  const FlatPart<In, kSplitThreads> part(args, gridDim.x - 1 - blockIdx.x, args.code_parts);
  const In* input = args.input + part.at.at[kInput];
  std::uint8_t* output = args.output + part.at.at[kOutput];
  const std::uint32_t last = part.count - 1;
  // Vectors count from the end of the run.
  std::uint32_t i = part.first;
  const auto load = [&](uint4(&v)[kFlatVectors]) {
#pragma unroll
    for (int k = 0; k < kFlatVectors; ++k)
      v[k] = cuda::load_once(reinterpret_cast<const uint4*>(input) +
                             (last - min(i + k * part.step, last)));
  };
  uint4 v[kFlatVectors], next[kFlatVectors];
  load(v);  // the input does not depend on the kernel before this one
  cuda::wait_for_previous();
  const auto parameters = flat_parameters(args, part.segment);
  if (part.part == 0 && threadIdx.x == 0) {
    math::store_scale(args.scale, part.at.at[kScale], parameters.segment.scale,
                      args.recipe.scale_dtype);
    if (args.recipe.mode == Mode::Asymmetric)
      args.zero_point[part.at.at[kZeroPoint]] = parameters.segment.zero_point;
  }
  if (!parameters.fast) {
    walk_codes<In, kCodes>(input, output, static_cast<std::int64_t>(part.count) * kPerVector<In>,
                           args.recipe, parameters.segment, args.order,
                           static_cast<int>(part.first), static_cast<int>(part.step));
    return;
  }
  by_rule(args.recipe.quotient, [&](auto divide) {
#pragma unroll 1
    while (i <= last) {
      const std::uint32_t now = i;
      i += kFlatVectors * part.step;
      if (i <= last) load(next);
#pragma unroll
      for (int k = 0; k < kFlatVectors; ++k) {
        const std::uint32_t at = now + k * part.step;
        const auto word =
            encode<In, kCodes, divide.value>(v[k], parameters.segment, args.recipe, args.order);
        if (at <= last)
          cuda::store_word<kBytes>(output + static_cast<std::int64_t>(last - at) * kBytes, word);
        v[k] = next[k];
      }
    }
  });
}

}  // namespace planq::dynamic_range_quantize
