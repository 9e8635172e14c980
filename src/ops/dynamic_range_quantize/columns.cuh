// Segments that lie side by side: a thread owns kCount neighbouring columns and goes down the rows.
//
// A channel along columns takes three kernels: ranges of chunks of rows, parameters, codes. A group
// of rows takes one, whose second look at the rows comes from the caches.
#pragma once

#include "cuda/launch.cuh"
#include "ops/dynamic_range_quantize/split.cuh"

namespace planq::dynamic_range_quantize {

inline constexpr int kColumnThreads = 256;
inline constexpr int kRowsAhead = 4;
inline constexpr int kMaxTileColumns = 256;  // of a group of rows

template <class C>
struct ColumnParameters {
  math::SegmentParameters<C> segment;
  bool fast;
};

template <class In>
struct ColumnArgs {
  const In* input;
  std::uint8_t* output;
  void* scale;
  std::int32_t* zero_point;
  // Channels: one line per row. Groups: one line per group of rows.
  Space lines;
  std::int64_t rows, columns;
  std::int64_t inner;  // neighbouring columns that share parameters
  std::int64_t chunk_rows;
  std::int32_t chunks, tiles;
  // Groups: distance of rows; the last of `groups` groups along the axis has `tail` rows.
  std::int64_t input_step, output_step, groups, group_divisor, tail;
  Partial<In>* partials;                      // [chunk][column]
  ColumnParameters<Compute<In>>* parameters;  // [column / inner]
  math::AffineRecipe<Compute<In>> recipe;
  NibbleOrder order;
};

// Rows that follow one another at strides, or as lines of a Space.
struct SpacedRows {
  const Space& lines;
  __device__ __forceinline__ std::int64_t input(std::int64_t row) const {
    return lines.rank <= 1 ? row * lines.axes[0].stride[kInput] : lines.offsets(row).at[kInput];
  }
  __device__ __forceinline__ std::int64_t output(std::int64_t row) const {
    return lines.rank <= 1 ? row * lines.axes[0].stride[kOutput] : lines.offsets(row).at[kOutput];
  }
};
struct SteppedRows {
  std::int64_t input_step, output_step;
  __device__ __forceinline__ std::int64_t input(std::int64_t row) const { return row * input_step; }
  __device__ __forceinline__ std::int64_t output(std::int64_t row) const {
    return row * output_step;
  }
};

// How many columns a thread owns: a vector's, or as many as share a byte of codes.
template <class In, Codes kCodes, bool kVector>
inline constexpr int kColumns = kVector ? kPerVector<In> : kCodes == Codes::Nibble ? 2 : 1;

// kCount elements of a row: one vector, or single elements of which `present` exist.
template <class In, int kCount, bool kVector>
struct RowOf {
  uint4 vector;
  In single[kVector ? 1 : kCount];

  __device__ __forceinline__ void load(const In* from, int present, bool once) {
    if constexpr (kVector) {
      vector = once ? cuda::load_once(from) : cuda::load_kept(from);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (i < present) single[i] = from[i];
    }
  }
  __device__ __forceinline__ Compute<In> value(int i) const {
    if constexpr (kVector)
      return element_of<In>(vector, i);
    else
      return math::widen(single[i]);
  }
  __device__ __forceinline__ KeyOf<In> key(int i, bool symmetric) const {
    if constexpr (!kVector) {
      return key_of(single[i], symmetric);
    } else if constexpr (sizeof(In) == 2) {
      const std::uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
      return key_of(In{static_cast<std::uint16_t>(words[i / 2] >> i % 2 * 16)}, symmetric);
    } else {
      return key_of(element_of<In>(vector, i), symmetric);
    }
  }
};

template <class In, int kCount, bool kVector>
struct ColumnExtents {
  Extent<In> extents[kCount];
  std::uint32_t special = 0;  // bit per column

  __device__ __forceinline__ void add(const RowOf<In, kCount, kVector>& row, bool symmetric, bool saturate) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const KeyOf<In> key = row.key(i, symmetric);
      const bool bad = saturate && is_special<In>(key);
      if (bad) special |= 1u << i;
      if (!bad) {
        extents[i].high = max(extents[i].high, key);
        if (!symmetric) extents[i].low = min(extents[i].low, key);
      }
    }
  }
};

// Rows first, first + step, ... below last, of this thread's columns.
template <class In, int kCount, bool kVector, class Rows>
__device__ __forceinline__ ColumnExtents<In, kCount, kVector> column_extents(
    const In* input, const Rows& rows, std::int64_t first, std::int64_t last, int step, int present,
    const math::AffineRecipe<Compute<In>>& recipe) {
  const bool symmetric = recipe.mode == Mode::Symmetric;
  const bool saturate = recipe.nonfinite == NonFinite::Saturate;
  ColumnExtents<In, kCount, kVector> result;
  if (present <= 0) return result;
  std::int64_t r = first;
#pragma unroll 1
  for (; r + (kRowsAhead - 1) * step < last; r += kRowsAhead * step) {
    RowOf<In, kCount, kVector> ahead[kRowsAhead];
#pragma unroll
    for (int j = 0; j < kRowsAhead; ++j)
      ahead[j].load(input + rows.input(r + j * step), present, false);
#pragma unroll
    for (int j = 0; j < kRowsAhead; ++j) result.add(ahead[j], symmetric, saturate);
  }
#pragma unroll 1
  for (; r < last; r += step) {
    RowOf<In, kCount, kVector> row;
    row.load(input + rows.input(r), present, false);
    result.add(row, symmetric, saturate);
  }
  return result;
}

// Combines the threads of a block that share columns. Calls put(column of the tile, partial).
template <class In, int kCount, bool kVector, class Put>
__device__ __forceinline__ void reduce_columns(const ColumnExtents<In, kCount, kVector>& mine,
                                               const Put& put) {
  __shared__ KeyOf<In> low[kColumnThreads * kCount], high[kColumnThreads * kCount];
  __shared__ std::uint8_t special[kColumnThreads];
  const int width = blockDim.x * kCount, thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    low[thread * kCount + i] = mine.extents[i].low;
    high[thread * kCount + i] = mine.extents[i].high;
  }
  special[thread] = static_cast<std::uint8_t>(mine.special);
  __syncthreads();
#pragma unroll 1
  for (int column = thread; column < width; column += kColumnThreads) {
    Partial<In> all{};
#pragma unroll 1
    for (unsigned y = 0; y < blockDim.y; ++y) {
      all.extent.low = min(all.extent.low, low[y * width + column]);
      all.extent.high = max(all.extent.high, high[y * width + column]);
      all.special |= special[y * blockDim.x + column / kCount] >> column % kCount & 1;
    }
    put(column, all);
  }
}

template <class In>
__device__ __forceinline__ ColumnParameters<Compute<In>> column_parameters(
    const Partial<In>& partial, const math::AffineRecipe<Compute<In>>& recipe) {
  const bool symmetric = recipe.mode == Mode::Symmetric;
  const bool special = partial.special != 0 || partial.extent.special();
  const auto range = range_of(partial.extent, symmetric, special);
  const auto segment = math::segment_parameters(recipe, range);
  return {segment, is_fast(recipe, segment, range)};
}

// Codes of the rows of this thread's columns, last row first. `parameters(i)` are column i's.
template <class In, Codes kCodes, bool kVector, class Rows, class Parameters>
__device__ __forceinline__ void column_codes(const In* input, std::uint8_t* output, const Rows& rows,
                                             std::int64_t first, std::int64_t last, int step,
                                             int present, const Parameters& parameters,
                                             const math::AffineRecipe<Compute<In>>& recipe,
                                             NibbleOrder order) {
  using C = Compute<In>;
  constexpr int kPerByte = kCodes == Codes::Nibble ? 2 : 1;
  constexpr int kCount = kColumns<In, kCodes, kVector>;
  if (present <= 0 || first >= last) return;
  C scale[kCount], inverse[kCount];
  std::int32_t zero[kCount];
  bool fast = true;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const ColumnParameters<C>& mine = parameters(i < present ? i : 0);
    scale[i] = mine.segment.scale;
    inverse[i] = mine.segment.inverse;
    zero[i] = mine.segment.zero_point;
    fast = fast && mine.fast;
  }
  if (!fast) {
#pragma unroll 1
    for (std::int64_t r = first; r < last; r += step) {
      const In* from = input + rows.input(r);
#pragma unroll 1
      for (int i = 0; i < present; i += kPerByte) {
        std::uint8_t code = math::code_of(math::widen(from[i]), recipe, parameters(i).segment);
        if constexpr (kCodes == Codes::Nibble) {
          std::uint8_t second = 0;
          if (i + 1 < present)
            second = math::code_of(math::widen(from[i + 1]), recipe, parameters(i + 1).segment);
          code = math::pack_nibbles(code, second, order);
        }
        output[rows.output(r) + i / kPerByte] = code;
      }
    }
    return;
  }
  by_rule(recipe.quotient, [&](auto divide) {
    const auto store = [&](const RowOf<In, kCount, kVector>& row, std::int64_t r) {
      std::uint32_t codes[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const C x = row.value(i);
        const C q = quotient<divide.value>(x, scale[i], inverse[i]);
        if constexpr (kCodes == Codes::Float8)
          codes[i] = __float_as_uint(float8_value(q, x, recipe));
        else
          codes[i] = integer_bits_of_column(q, zero[i], recipe);
        if (!kVector && i >= present) codes[i] = 0;
      }
      const auto word = finish<kCodes>(codes, recipe.output_dtype, order);
      cuda::store_word<sizeof(word)>(output + rows.output(r), word);
    };
    std::int64_t r = last - 1 - (last - 1 - first) % step;
#pragma unroll 1
    for (; r - (kRowsAhead - 1) * step >= first; r -= kRowsAhead * step) {
      RowOf<In, kCount, kVector> ahead[kRowsAhead];
#pragma unroll
      for (int j = 0; j < kRowsAhead; ++j)
        ahead[j].load(input + rows.input(r - j * step), present, true);
#pragma unroll
      for (int j = 0; j < kRowsAhead; ++j) store(ahead[j], r - j * step);
    }
#pragma unroll 1
    for (; r >= first; r -= step) {
      RowOf<In, kCount, kVector> row;
      row.load(input + rows.input(r), present, true);
      store(row, r);
    }
  });
}

// --- Channels -------------------------------------------------------------------------------------

// Where a block stands: its tile of columns and its chunk of rows.
template <class In, int kCount>
struct ColumnPlace {
  std::int64_t column, first, last;
  int chunk, present;

  __device__ __forceinline__ ColumnPlace(const ColumnArgs<In>& args, unsigned block) {
    chunk = static_cast<int>(block / args.tiles);
    const std::int64_t tile = block - static_cast<unsigned>(chunk) * args.tiles;
    column = (tile * blockDim.x + threadIdx.x) * kCount;
    const std::int64_t left = args.columns - column;
    present = left > kCount ? kCount : static_cast<int>(left);
    first = chunk * args.chunk_rows;
    last = min(first + args.chunk_rows, args.rows);
  }
};

template <class In, bool kVector>
__global__ void __launch_bounds__(kColumnThreads)
    column_ranges(const __grid_constant__ ColumnArgs<In> args) {
  constexpr int kCount = kColumns<In, Codes::Byte, kVector>;
  cuda::let_dependents_start();
  const ColumnPlace<In, kCount> place(args, blockIdx.x);
  const auto extents = column_extents<In, kCount, kVector>(
      args.input + place.column, SpacedRows{args.lines}, place.first + threadIdx.y, place.last,
      blockDim.y, place.present, args.recipe);
  const std::int64_t base = place.column - threadIdx.x * kCount;
  reduce_columns(extents, [&](int column, const Partial<In>& partial) {
    if (base + column < args.columns)
      args.partials[place.chunk * args.columns + base + column] = partial;
  });
}

// 32 channels a block; its 8 warps share the chunks.
template <class In>
__global__ void __launch_bounds__(kColumnThreads)
    column_finish(const __grid_constant__ ColumnArgs<In> args) {
  __shared__ Partial<In> partials[kColumnThreads];
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * cuda::kWarp + threadIdx.x;
  const bool exists = channel < args.columns / args.inner;
  cuda::let_dependents_start();
  cuda::wait_for_previous();
  Partial<In> all{};
  if (exists) {
#pragma unroll 1
    for (int chunk = threadIdx.y; chunk < args.chunks; chunk += blockDim.y)
#pragma unroll 4
      for (std::int64_t i = 0; i < args.inner; ++i)
        all.add(args.partials[chunk * args.columns + channel * args.inner + i]);
  }
  partials[threadIdx.y * cuda::kWarp + threadIdx.x] = all;
  __syncthreads();
  if (threadIdx.y != 0 || !exists) return;
#pragma unroll 1
  for (unsigned y = 1; y < blockDim.y; ++y) all.add(partials[y * cuda::kWarp + threadIdx.x]);
  const auto parameters = column_parameters(all, args.recipe);
  args.parameters[channel] = parameters;
  math::store_scale(args.scale, channel, parameters.segment.scale, args.recipe.scale_dtype);
  if (args.recipe.mode == Mode::Asymmetric)
    args.zero_point[channel] = parameters.segment.zero_point;
}

template <class In, Codes kCodes, bool kVector>
__global__ void __launch_bounds__(kColumnThreads)
    column_channels(const __grid_constant__ ColumnArgs<In> args) {
  constexpr int kCount = kColumns<In, kCodes, kVector>;
  const ColumnPlace<In, kCount> place(args, gridDim.x - 1 - blockIdx.x);
  cuda::wait_for_previous();
  column_codes<In, kCodes, kVector>(
      args.input + place.column,
      args.output + place.column / (kCodes == Codes::Nibble ? 2 : 1), SpacedRows{args.lines},
      place.first + threadIdx.y, place.last, blockDim.y, place.present,
      [&](int i) -> const ColumnParameters<Compute<In>>& {
        return args.parameters[(place.column + i) / args.inner];
      },
      args.recipe, args.order);
}

// --- Groups of rows -------------------------------------------------------------------------------

template <class In, Codes kCodes, bool kVector>
__global__ void __launch_bounds__(kColumnThreads)
    column_groups(const __grid_constant__ ColumnArgs<In> args) {
  constexpr int kCount = kColumns<In, kCodes, kVector>;
  using C = Compute<In>;
  __shared__ ColumnParameters<C> parameters[kMaxTileColumns];
  const std::int64_t line = blockIdx.x / static_cast<unsigned>(args.tiles);
  const std::int64_t tile = blockIdx.x - static_cast<unsigned>(line) * args.tiles;
  const Offsets at = args.lines.offsets(line);
  const SteppedRows rows{args.input_step, args.output_step};
  const std::int64_t base = tile * blockDim.x * kCount, column = base + threadIdx.x * kCount;
  const std::int64_t left = args.columns - column;
  const int present = left > kCount ? kCount : static_cast<int>(left);
  std::int64_t count = args.rows;
  if (args.groups > 1 && line / args.group_divisor % args.groups == args.groups - 1)
    count = args.tail;

  const In* input = args.input + at.at[kInput] + column;
  const auto extents = column_extents<In, kCount, kVector>(input, rows, threadIdx.y, count, blockDim.y,
                                                  present, args.recipe);
  reduce_columns(extents, [&](int place, const Partial<In>& partial) {
    if (base + place >= args.columns) return;
    const auto mine = column_parameters(partial, args.recipe);
    parameters[place] = mine;
    math::store_scale(args.scale, at.at[kScale] + base + place, mine.segment.scale,
                      args.recipe.scale_dtype);
    if (args.recipe.mode == Mode::Asymmetric)
      args.zero_point[at.at[kZeroPoint] + base + place] = mine.segment.zero_point;
  });
  __syncthreads();
  column_codes<In, kCodes, kVector>(
      input, args.output + at.at[kOutput] + column / (kCodes == Codes::Nibble ? 2 : 1), rows,
      threadIdx.y, count, blockDim.y, present,
      [&](int i) -> const ColumnParameters<C>& { return parameters[threadIdx.x * kCount + i]; },
      args.recipe, args.order);
}

}  // namespace planq::dynamic_range_quantize
