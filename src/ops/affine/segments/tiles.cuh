// Tiles of rows and columns that stay in a block's registers: read once, reduced, quantized and
// written, in aligned vectors. elements.cuh has the kernel for any alignment.
#pragma once

#include "ops/affine/segments/aligned_rows.cuh"

namespace planq::affine {

inline constexpr int kTileVectors = 8;  // of a thread

// Every row of every tile consists of whole vectors, aligned in the input and in the output.
template <class In>
struct TileArgs {
  const In* input;
  std::uint8_t* output;
  void* scale;
  std::int32_t* zero_point;
  cuda::IndexSpace32 tiles;                // in the order of the parameters
  std::int64_t input_pitch, output_pitch;  // from row to row
  // Tiles beside and below each other; the last ones may be smaller.
  cuda::Divider across, down;
  cuda::Divider width, last_width;  // vectors of a row
  std::uint32_t rows, last_rows;
  math::AffineSpec<Compute<In>> spec;
  NibbleOrder order;
};

template <class In, Codes kCodes>
struct Tile {
  const In* input;
  std::uint8_t* output;
  std::int64_t scale, zero_point;  // element offsets
  std::int64_t input_pitch, output_pitch;
  cuda::Divider width;
  std::uint32_t vectors;

  __device__ __forceinline__ Tile(const TileArgs<In>& args, std::uint32_t index)
      : input_pitch(args.input_pitch), output_pitch(args.output_pitch) {
    const Offsets at = args.tiles.offsets(index);
    input = args.input + at.at[kInput];
    output = args.output + at.at[kOutput];
    scale = at.at[kScale];
    zero_point = at.at[kZeroPoint];
    const std::uint32_t row = args.across.quotient(index);
    const bool last = index - row * args.across.divisor == args.across.divisor - 1;
    const bool lowest = row - args.down.quotient(row) * args.down.divisor == args.down.divisor - 1;
    width = last ? args.last_width : args.width;
    vectors = width.divisor * (lowest ? args.last_rows : args.rows);
  }

  // Where vector i begins, and the word of its codes.
  __device__ __forceinline__ const In* vector(std::uint32_t i) const {
    const std::uint32_t row = width.quotient(i);
    return input + row * input_pitch + (i - row * width.divisor) * kPerVector<In>;
  }
  __device__ __forceinline__ std::uint8_t* word(std::uint32_t i) const {
    const std::uint32_t row = width.quotient(i);
    return output + row * output_pitch + (i - row * width.divisor) * kWordBytes<In, kCodes>;
  }
};

template <class In, Codes kCodes>
__device__ __forceinline__ KeyRange<In> finite_tile(const TileArgs<In>& args) {
  const Tile<In, kCodes> tile(args, blockIdx.x);
  const bool symmetric = args.spec.mode == Mode::Symmetric;
  KeyRange<In> key_range;
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < tile.vectors; i += blockDim.x)
    key_range.add(walk_finite(tile.vector(i), kPerVector<In>, 0, 1, symmetric));
  return key_range;
}

template <class In, Codes kCodes>
__device__ __forceinline__ void walk_tile(const TileArgs<In>& args,
                                          const math::AffineSpec<Compute<In>>& spec,
                                          const math::SegmentParameters<Compute<In>> parameters) {
  const Tile<In, kCodes> tile(args, blockIdx.x);
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < tile.vectors; i += blockDim.x)
    walk_codes<In, kCodes>(tile.vector(i), tile.word(i), kPerVector<In>, spec, parameters,
                           args.order, 0, 1);
}

// A block per tile.
template <class In, Codes kCodes>
__global__ void __launch_bounds__(kRowThreads, 2)
    quantize_tiles(const __grid_constant__ TileArgs<In> args) {
  using C = Compute<In>;
  const bool symmetric = args.spec.mode == Mode::Symmetric;
  uint4 v[kTileVectors];
  KeyRange<In> key_range;
  {
    const Tile<In, kCodes> tile(args, blockIdx.x);
    bool active[kTileVectors];
#pragma unroll
    for (int k = 0; k < kTileVectors; ++k) {
      const std::uint32_t i = threadIdx.x + k * blockDim.x;
      active[k] = i < tile.vectors;
      v[k] = make_uint4(0, 0, 0, 0);
      if (active[k]) v[k] = cuda::load_once(tile.vector(i));
    }
    key_range = key_range_of<In>(v, active, symmetric);
  }
  key_range = team_key_range<Team::Block>(0, key_range, 1, symmetric);
  const bool special = key_range.special();
  if (special && args.spec.nonfinite == NonFinite::Saturate)
    key_range = team_key_range<Team::Block>(1, finite_tile<In, kCodes>(args), 1, symmetric);

  const math::Range<C> range = range_of(key_range, symmetric, special);
  const math::SegmentParameters<C> parameters = math::segment_parameters(args.spec, range);
  const Tile<In, kCodes> tile(args, again(blockIdx.x));
  if (threadIdx.x == 0) {
    store_scale(args.scale, tile.scale, parameters.scale, args.spec.scale_dtype);
    if (!symmetric) cuda::store_once(args.zero_point + tile.zero_point, parameters.zero_point);
  }
  if (!is_fast(args.spec, parameters, range)) {
    walk_tile<In, kCodes>(args, args.spec, parameters);
    return;
  }
  const Numbers<C> numbers(parameters, args.spec);
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < tile.vectors; i += blockDim.x) {
    const auto word = encode_by_any_rule<In, kCodes>(v[0], numbers, args.spec, args.order);
    cuda::store_word<kWordBytes<In, kCodes>>(tile.word(i), word);
    move_down(v);
  }
}

// --- Specialized --------------------------------------------------------------------------------

// The row of a thread's first vector is threadIdx.x / width, and the next one is `step` rows below.
template <class In>
struct AlignedTileArgs : TileArgs<In> {
  std::uint32_t step;
  bool exact;                        // as in RegularArgs
  Compute<In> steps, inverse_steps;  // of a scale in the span of a tile
};

// What is left to do where the numbers of a tile are not ordinary.
template <Codes kCodes, bool kAsymmetric, class In>
__device__ __noinline__ void walk_aligned_tile(const AlignedTileArgs<In>& args, KeyOf<In> low,
                                               KeyOf<In> high) {
  const auto spec = known_spec<Variant::Specialized, kAsymmetric>(args.spec);
  KeyRange<In> key_range{low, high};
  const bool special = key_range.special();
  if (special && args.spec.nonfinite == NonFinite::Saturate)
    key_range = team_key_range<Team::Block>(1, finite_tile<In, kCodes>(args), 1, !kAsymmetric);
  const auto parameters =
      math::segment_parameters(spec, range_of(key_range, !kAsymmetric, special));
  const Tile<In, kCodes> tile(args, blockIdx.x);
  if (threadIdx.x == 0) {
    store_scale(args.scale, tile.scale, parameters.scale, spec.scale_dtype);
    if constexpr (kAsymmetric)
      cuda::store_once(args.zero_point + tile.zero_point, parameters.zero_point);
  }
  walk_tile<In, kCodes>(args, spec, parameters);
}

// Where a tile lies, and how much of a whole tile it has.
template <class In>
struct AlignedTile {
  Offsets at;
  std::uint32_t width, rows;  // vectors of a row

  __device__ __forceinline__ AlignedTile(const AlignedTileArgs<In>& args, std::uint32_t index)
      : at(args.tiles.offsets_of_few(index)), width(args.width.divisor), rows(args.rows) {
    const std::uint32_t down = args.across.quotient(index);
    if (index - down * args.across.divisor == args.across.divisor - 1)
      width = args.last_width.divisor;
    if (down - args.down.quotient(down) * args.down.divisor == args.down.divisor - 1)
      rows = args.last_rows;
  }
};

// A block per tile; its threads cover rows of the tile, and a thread stays in its column.
template <class In, Codes kCodes, int kVectors, bool kAsymmetric>
__global__ void __launch_bounds__(kRowThreads, kRegularBlocks<In, kVectors>)
    quantize_aligned_tiles(const __grid_constant__ AlignedTileArgs<In> args) {
  using C = Compute<In>;
  uint4 v[kVectors];
  {
    const AlignedTile<In> tile(args, blockIdx.x);
    const std::uint32_t row = args.width.quotient(threadIdx.x);
    const std::uint32_t column = threadIdx.x - row * args.width.divisor;
    // Beyond the edges of a smaller tile its last column or row comes again, which changes no
    // range.
    const In* input =
        args.input + tile.at.at[kInput] + min(column, tile.width - 1) * kPerVector<In>;
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      v[k] = cuda::load_once(input + min(row + k * args.step, tile.rows - 1) * args.input_pitch);
  }
  const KeyRange<In> key_range =
      team_key_range<Team::Block>(0, vector_key_range<In, kAsymmetric>(v), 1, !kAsymmetric);
  math::SegmentParameters<C> parameters;
  if (!regular_parameters<Variant::Specialized, kAsymmetric>(args, key_range, parameters)) {
    walk_aligned_tile<kCodes, kAsymmetric>(args, key_range.low, key_range.high);
    return;
  }
  const Numbers<C> numbers(parameters, args.spec);
  constexpr int kBytes = kWordBytes<In, kCodes>;
  const AlignedTile<In> tile(args, again(blockIdx.x));
  const std::uint32_t row = args.width.quotient(again(threadIdx.x));
  const std::uint32_t column = threadIdx.x - row * args.width.divisor;
  std::uint8_t* output = args.output + tile.at.at[kOutput] + column * kBytes;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const std::uint32_t i = row + k * args.step;
    const auto word = encode<In, kCodes, kAsymmetric, true, kFreeBounds<kCodes, kAsymmetric>>(
        v[k], numbers, args.spec, args.order);
    if (column < tile.width && i < tile.rows)
      cuda::store_word<kBytes>(output + i * args.output_pitch, word);
  }
  if (threadIdx.x == 0) {
    cuda::store_once(static_cast<C*>(args.scale) + tile.at.at[kScale], parameters.scale);
    if constexpr (kAsymmetric)
      cuda::store_once(args.zero_point + tile.at.at[kZeroPoint], parameters.zero_point);
  }
}

}  // namespace planq::affine
