// Segments that lie side by side: a thread owns kCount neighbouring columns and goes down the rows.
//
// A channel along columns takes three kernels: ranges of chunks of rows, parameters, codes. A group
// of rows takes one, whose second look at the rows comes from the caches.
#pragma once

#include "cuda/launch.cuh"
#include "ops/affine/heuristics_sm90.h"
#include "ops/affine/segments/split.cuh"

namespace planq::affine {

inline constexpr int kColumnThreads = 256;
inline constexpr int kColumnRangeThreads = 512;
inline constexpr int kRowsAhead = 4;
// Blocks of a multiprocessor: what the registers of the kernels leave room for.
inline constexpr int kColumnRangeBlocks = 2;
inline constexpr int kColumnCodeBlocks = 4;
inline constexpr int kMaxTileColumns = 256;  // of a group of rows

template <class C>
struct ColumnParameters {
  math::SegmentParameters<C> segment;
  bool fast;
};

// The same in arrays, one element for each channel.
template <class C>
struct ColumnArrays {
  C *scale, *inverse;
  std::int32_t* zero_point;
  bool* fast;

  __device__ __forceinline__ void set(std::int64_t at,
                                      const ColumnParameters<C>& parameters) const {
    scale[at] = parameters.segment.scale;
    inverse[at] = parameters.segment.inverse;
    zero_point[at] = parameters.segment.zero_point;
    fast[at] = parameters.fast;
  }
  __device__ __forceinline__ ColumnParameters<C> get(std::int64_t at) const {
    // Only poisoned columns have no number as their scale.
    return {{scale[at], inverse[at], zero_point[at], math::is_nan(scale[at])}, fast[at]};
  }
};

// Parameters of a block's columns, in shared memory. A thread's column i lies at i * blockDim.x, so
// that the threads of a warp read neighbours.
template <class C>
class ColumnTile {
 public:
  __device__ __forceinline__ void set(int column, int per_thread,
                                      const ColumnParameters<C>& parameters) {
    const int at = column % per_thread * blockDim.x + column / per_thread;
    scale_[at] = parameters.segment.scale;
    inverse_[at] = parameters.segment.inverse;
    zero_point_[at] = parameters.segment.zero_point;
    fast_[at] = parameters.fast;
  }
  // Of this thread's column i; see ColumnArrays::get().
  __device__ __forceinline__ math::SegmentParameters<C> segment(int i) const {
    const int at = i * blockDim.x + threadIdx.x;
    return {scale_[at], inverse_[at], zero_point_[at], math::is_nan(scale_[at])};
  }
  __device__ __forceinline__ bool fast(int i) const { return fast_[i * blockDim.x + threadIdx.x]; }

 private:
  C scale_[kMaxTileColumns], inverse_[kMaxTileColumns];
  std::int32_t zero_point_[kMaxTileColumns];
  bool fast_[kMaxTileColumns];
};

template <class In>
struct ColumnArgs {
  const In* input;
  std::uint8_t* output;
  void* scale;
  std::int32_t* zero_point;
  // Channels: one line per row. Groups: one line per group of rows.
  IndexSpace lines;
  std::int64_t rows, columns;
  std::int64_t inner;       // neighbouring columns that share parameters
  std::int64_t chunk_rows;  // of this kernel; `chunks` are those of the partials
  std::int32_t chunks, tiles;
  // Groups: distance of rows; the last of `groups` groups along the axis has `tail` rows.
  std::int64_t input_step, output_step, groups, group_divisor, tail;
  Partial<In>* partials;                 // [chunk][column]
  ColumnArrays<Compute<In>> parameters;  // [column / inner]
  bool keep;                             // whether the input may stay in the cache
  math::AffineSpec<Compute<In>> spec;
  NibbleOrder order;
};

// Where rows begin: lines of an IndexSpace, or at equal steps.
struct SpacedRows {
  static constexpr bool kEqual = false;
  const IndexSpace& lines;
  __device__ __forceinline__ std::int64_t input(std::int64_t row) const {
    return lines.rank == 1 ? row * lines.axes[0].stride[kInput] : lines.offsets(row).at[kInput];
  }
  __device__ __forceinline__ std::int64_t output(std::int64_t row) const {
    return lines.rank == 1 ? row * lines.axes[0].stride[kOutput] : lines.offsets(row).at[kOutput];
  }
};
struct SteppedRows {
  static constexpr bool kEqual = true;
  std::int64_t input_step, output_step;
  __device__ __forceinline__ std::int64_t input(std::int64_t row) const { return row * input_step; }
  __device__ __forceinline__ std::int64_t output(std::int64_t row) const {
    return row * output_step;
  }
};
template <bool kEqual>
__device__ __forceinline__ auto rows_of(const IndexSpace& lines) {
  if constexpr (kEqual)
    return SteppedRows{lines.rank > 0 ? lines.axes[0].stride[kInput] : 0,
                       lines.rank > 0 ? lines.axes[0].stride[kOutput] : 0};
  else
    return SpacedRows{lines};
}

// The rows first, first + step, ... of a thread, kRowsAhead at a time; a negative step goes up.
template <class Rows>
struct RowWalk {
  const Rows& rows;
  std::int64_t row, left, step;  // `left` counts the rows of this thread
  std::int64_t in, out, input_step, output_step;

  __device__ __forceinline__ RowWalk(const Rows& rows, std::int64_t first, std::int64_t count,
                                     std::int64_t step)
      : rows(rows), row(first), left(count), step(step) {
    if constexpr (Rows::kEqual) {
      in = rows.input(first);
      out = rows.output(first);
      input_step = rows.input(step);
      output_step = rows.output(step);
    }
  }
  __device__ __forceinline__ bool has(int j) const { return j < left; }
  __device__ __forceinline__ std::int64_t input(int j) const {
    if constexpr (Rows::kEqual) return in + j * input_step;
    return rows.input(row + j * step);
  }
  __device__ __forceinline__ std::int64_t output(int j) const {
    if constexpr (Rows::kEqual) return out + j * output_step;
    return rows.output(row + j * step);
  }
  __device__ __forceinline__ void advance() {
    left -= kRowsAhead;
    if constexpr (Rows::kEqual) {
      in += kRowsAhead * input_step;
      out += kRowsAhead * output_step;
    } else {
      row += kRowsAhead * step;
    }
  }
};

__device__ __forceinline__ std::int64_t rows_below(std::int64_t first, std::int64_t last,
                                                   int step) {
  if (first >= last) return 0;
  const std::int64_t span = last - 1 - first;
  return (span >> 32 == 0 ? static_cast<std::uint32_t>(span) / static_cast<unsigned>(step)
                          : span / step) +
         1;
}

// How many columns a thread owns: a vector's, or as many as share a byte of codes.
template <class In, Codes kCodes, bool kVector>
inline constexpr int kColumns = kVector                   ? kPerVector<In>
                                : kCodes == Codes::Nibble ? 2
                                                          : 1;

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

template <class In, int kCount>
struct ColumnKeyRanges {
  KeyRange<In> key_ranges[kCount];
  std::uint32_t special = 0;  // bit per column
};

// Running maxima of columns, infinities and NaN among them; 16-bit columns two to a word.
template <class In, int kCount, bool kVector, bool kSymmetric>
struct ColumnMaxima {
  static constexpr bool kPairs = kVector && sizeof(In) == 2;
  static constexpr int kKeys = kPairs ? kCount / 2 : kCount;
  using Key = std::conditional_t<kPairs, std::uint32_t, KeyOf<In>>;
  static constexpr Key kNone =
      kPairs ? static_cast<Key>(0x80008000u) : std::numeric_limits<KeyOf<In>>::min();
  Key high[kKeys], low[kKeys];  // symmetric: low stays as it is

  __device__ __forceinline__ ColumnMaxima() {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      high[i] = kNone;
      low[i] = ~kNone;
    }
  }
  __device__ __forceinline__ void add(const RowOf<In, kCount, kVector>& row) {
    if constexpr (kPairs) {
      const std::uint32_t words[4] = {row.vector.x, row.vector.y, row.vector.z, row.vector.w};
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const std::uint32_t key = kSymmetric ? words[i] & 0x7FFF7FFFu
                                             : words[i] ^ (signs_of_halves(words[i]) & 0x7FFF7FFFu);
        high[i] = __vmaxs2(high[i], key);
        if constexpr (!kSymmetric) low[i] = __vmins2(low[i], key);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const KeyOf<In> key = row.key(i, kSymmetric);
        high[i] = max(high[i], key);
        if constexpr (!kSymmetric) low[i] = min(low[i], key);
      }
    }
  }
  __device__ __forceinline__ KeyRange<In> key_range(int i) const {
    KeyRange<In> result;
    if constexpr (kPairs) {
      if (high[0] == kNone && low[0] == ~kNone) return result;  // no row at all
      result.high = static_cast<std::int16_t>(high[i / 2] >> i % 2 * 16);
      if constexpr (!kSymmetric) result.low = static_cast<std::int16_t>(low[i / 2] >> i % 2 * 16);
    } else {
      result.high = high[i];
      if constexpr (!kSymmetric) result.low = low[i];
    }
    return result;
  }
};

template <class In, int kCount, bool kVector, bool kSymmetric, class Rows>
__device__ __forceinline__ void add_rows(const In* input, RowWalk<Rows> walk, int present,
                                         bool keep, ColumnKeyRanges<In, kCount>& result) {
  ColumnMaxima<In, kCount, kVector, kSymmetric> maxima;
#pragma unroll 1
  for (; walk.left > 0; walk.advance()) {
    RowOf<In, kCount, kVector> ahead[kRowsAhead];
#pragma unroll
    for (int j = 0; j < kRowsAhead; ++j)
      if (walk.has(j)) ahead[j].load(input + walk.input(j), present, !keep);
#pragma unroll
    for (int j = 0; j < kRowsAhead; ++j)
      if (walk.has(j)) maxima.add(ahead[j]);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) result.key_ranges[i] = maxima.key_range(i);
}

// SATURATE met infinities or NaN in the columns `result.special`: their finite elements.
template <class In, int kCount, bool kVector, class Rows>
__device__ __forceinline__ void find_finite(const In* input, const Rows& rows, std::int64_t first,
                                            std::int64_t count, int step, int present,
                                            bool symmetric, ColumnKeyRanges<In, kCount>& result) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (result.special >> i & 1) result.key_ranges[i] = {};
#pragma unroll 1
  for (std::int64_t n = 0; n < count; ++n) {
    RowOf<In, kCount, kVector> row;
    row.load(input + rows.input(first + n * step), present, false);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const KeyOf<In> key = row.key(i, symmetric);
      if ((result.special >> i & 1) && !is_special<In>(key)) result.key_ranges[i].add(key);
    }
  }
}

// Rows first, first + step, ... below last, of this thread's columns.
template <class In, int kCount, bool kVector, class Rows>
__device__ __forceinline__ ColumnKeyRanges<In, kCount> column_key_ranges(
    const In* input, const Rows& rows, std::int64_t first, std::int64_t last, int step, int present,
    bool keep, const math::AffineSpec<Compute<In>>& spec) {
  const bool symmetric = spec.mode == Mode::Symmetric;
  ColumnKeyRanges<In, kCount> result;
  if (present <= 0) return result;
  const std::int64_t count = rows_below(first, last, step);
  const RowWalk<Rows> walk(rows, first, count, step);
  if (symmetric)
    add_rows<In, kCount, kVector, true>(input, walk, present, keep, result);
  else
    add_rows<In, kCount, kVector, false>(input, walk, present, keep, result);
  if (spec.nonfinite != NonFinite::Saturate) return result;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (result.key_ranges[i].special()) result.special |= 1u << i;
  if (result.special != 0)
    find_finite<In, kCount, kVector>(input, rows, first, count, step, present, symmetric, result);
  return result;
}

// Combines the threads of a block that share columns. Calls put(column of the tile, partial).
template <int kThreads, class In, int kCount, class Put>
__device__ __forceinline__ void reduce_columns(const ColumnKeyRanges<In, kCount>& mine,
                                               const Put& put) {
  __shared__ alignas(16) KeyOf<In> low[kThreads * kCount], high[kThreads * kCount];
  __shared__ std::uint8_t special[kThreads];
  const int width = blockDim.x * kCount, thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    low[thread * kCount + i] = mine.key_ranges[i].low;
    high[thread * kCount + i] = mine.key_ranges[i].high;
  }
  special[thread] = static_cast<std::uint8_t>(mine.special);
  __syncthreads();
#pragma unroll 1
  for (int column = thread; column < width; column += kThreads) {
    Partial<In> all{};
#pragma unroll 1
    for (unsigned y = 0; y < blockDim.y; ++y) {
      all.key_range.low = min(all.key_range.low, low[y * width + column]);
      all.key_range.high = max(all.key_range.high, high[y * width + column]);
      all.special |= special[y * blockDim.x + column / kCount] >> column % kCount & 1;
    }
    put(column, all);
  }
}

template <class In>
__device__ __forceinline__ ColumnParameters<Compute<In>> column_parameters(
    const Partial<In>& partial, const math::AffineSpec<Compute<In>>& spec) {
  const bool symmetric = spec.mode == Mode::Symmetric;
  const bool special = partial.special != 0 || partial.key_range.special();
  const auto range = range_of(partial.key_range, symmetric, special);
  const auto segment = math::segment_parameters(spec, range);
  return {segment, is_fast(spec, segment, range)};
}

// Row by row and element by element, where some column of this thread needs it.
template <class In, Codes kCodes, class Rows>
__device__ __forceinline__ void walk_column_codes(const In* input, std::uint8_t* output,
                                                  const Rows& rows, std::int64_t first,
                                                  std::int64_t count, int step, int present,
                                                  const ColumnTile<Compute<In>>& tile,
                                                  const math::AffineSpec<Compute<In>>& spec,
                                                  NibbleOrder order) {
#pragma unroll 1
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t r = first + n * step;
    const In* from = input + rows.input(r);
#pragma unroll 1
    for (int i = 0; i < present; i += kPerByte<kCodes>) {
      std::uint8_t code = code_of<kCodes>(math::widen(from[i]), spec, tile.segment(i));
      if constexpr (kCodes == Codes::Nibble) {
        std::uint8_t second = 0;
        if (i + 1 < present)
          second = code_of<kCodes>(math::widen(from[i + 1]), spec, tile.segment(i + 1));
        code = math::pack_nibbles(code, second, order);
      }
      output[rows.output(r) + i / kPerByte<kCodes>] = code;
    }
  }
}

// Numbers of every column; symmetric columns have no zero points.
template <class C, int kCount, bool kAsymmetric>
struct ColumnNumbers {
  C scale[kCount], inverse[kCount];
  std::int32_t zero[kAsymmetric ? kCount : 1];  // Bounds::Saturate: signed offsets
};

// A column's zero point is no constant of the loop, so it is added and clamped as an integer.
template <bool kAsymmetric, Bounds kBounds, class C>
__device__ __forceinline__ std::uint32_t column_code(C quotient, std::int32_t zero,
                                                     const Numbers<C>& none,
                                                     const math::AffineSpec<C>& spec) {
  if constexpr (!kAsymmetric) return integer_code<false, kBounds>(quotient, none, spec);
  std::int32_t code = static_cast<std::int32_t>(rounded(quotient)) + zero;
  if constexpr (sizeof(C) == 4) code -= static_cast<std::int32_t>(kRoundedBits);
  if constexpr (kBounds == Bounds::Clamp) code = min(max(code, spec.q_low), spec.q_high);
  return static_cast<std::uint32_t>(code);
}

template <class In, Codes kCodes, bool kVector, bool kAsymmetric, Bounds kBounds, int kCount,
          class Divides>
__device__ __forceinline__ auto encode_row(
    Divides divides, const RowOf<In, kCount, kVector>& row,
    const ColumnNumbers<Compute<In>, kCount, kAsymmetric>& by, int present,
    const math::AffineSpec<Compute<In>>& spec, NibbleOrder order) {
  using C = Compute<In>;
  const Numbers<C> none(C{1}, C{1}, 0, spec);
  std::uint32_t codes[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const C x = row.value(i);
    const C q = quotient_by(divides, x, by.scale[i], by.inverse[i]);
    if constexpr (is_float8(kCodes))
      codes[i] = __float_as_uint(float8_value_by<kBounds>(divides, q, x, spec));
    else
      codes[i] = column_code<kAsymmetric, kBounds>(q, by.zero[kAsymmetric ? i : 0], none, spec);
    if (!kVector && i >= present) codes[i] = 0;
  }
  return finish<kCodes, kBounds>(codes, spec.output_dtype, order);
}

// Calls use(asymmetric, divides, bounds) for any descriptor: symmetric columns have zero points of
// 0. Single columns may miss their second nibble, which must be 0, so codes are not left to
// saturate here. kOnce: one copy for both rules.
template <Codes kCodes, bool kOnce, class C, class Use>
__device__ __forceinline__ void by_generic(const math::AffineSpec<C>& spec, const Use& use) {
  const auto use_rule = [&](auto divides) {
    use(std::bool_constant<!is_float8(kCodes)>{}, divides, BoundsConstant<Bounds::Clamp>{});
  };
  if constexpr (kOnce)
    use_rule(spec.quotient == Quotient::Divide);
  else
    by_rule(spec.quotient, use_rule);
}

// Codes of the rows of this thread's columns, last row first. All threads of the block call this,
// and fill() once: it fills the tile. decide(use) is by_generic() or what it comes down to.
template <class In, Codes kCodes, bool kVector, class Rows, class Fill, class Decide>
__device__ __forceinline__ void column_codes(const In* input, std::uint8_t* output,
                                             const Rows& rows, std::int64_t first,
                                             std::int64_t last, int step, int present,
                                             const Fill& fill, const ColumnTile<Compute<In>>& tile,
                                             const math::AffineSpec<Compute<In>>& spec,
                                             NibbleOrder order, const Decide& decide) {
  using C = Compute<In>;
  constexpr int kCount = kColumns<In, kCodes, kVector>;
  const std::int64_t count = present > 0 ? rows_below(first, last, step) : 0;
  RowWalk<Rows> walk(rows, first + (count - 1) * step, count, -step);
  RowOf<In, kCount, kVector> ahead[kRowsAhead];
  // Where it is long, the code of a row is there once: loads do not begin before the parameters.
  constexpr bool kOnce = !kVector || !Rows::kEqual;
  const auto load = [&] {
#pragma unroll
    for (int j = 0; j < kRowsAhead; ++j)
      if (walk.has(j)) ahead[j].load(input + walk.input(j), present, true);
  };
  if constexpr (!kOnce) load();
  fill();
  if (count == 0) return;
  bool fast = true;
#pragma unroll
  for (int i = 0; i < kCount; ++i) fast = fast && tile.fast(i < present ? i : 0);
  if (!fast)
    return walk_column_codes<In, kCodes>(input, output, rows, first, count, step, present, tile,
                                         spec, order);
  decide([&](auto asymmetric, auto divides, auto bounds) {
    constexpr bool kAsymmetric = asymmetric.value;
    ColumnNumbers<C, kCount, kAsymmetric> by;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const Numbers<C> mine(tile.segment(i < present ? i : 0), spec);
      by.scale[i] = mine.scale;
      by.inverse[i] = mine.inverse;
      if constexpr (kAsymmetric)
        by.zero[i] = bounds.value == Bounds::Saturate ? mine.signed_offset : mine.zero_point;
    }
#pragma unroll 1
    while (walk.left > 0) {
      const auto store = [&](int j, const RowOf<In, kCount, kVector>& row) {
        const auto word = encode_row<In, kCodes, kVector, kAsymmetric, bounds.value>(
            divides, row, by, present, spec, order);
        if (walk.has(j)) cuda::store_word<sizeof(word)>(output + walk.output(j), word);
      };
      if constexpr (kOnce) {
        load();
#pragma unroll 1
        for (int j = 0; j < kRowsAhead; ++j) {
          store(j, ahead[0]);
          move_down(ahead);
        }
        walk.advance();
      } else {
#pragma unroll
        for (int j = 0; j < kRowsAhead; ++j) store(j, ahead[j]);
        walk.advance();
        load();
      }
    }
  });
}

// --- Channels ----------------------------------------------------------------------------------

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

// kEqual: rows follow one another at equal steps.
template <class In, bool kVector, bool kEqual>
__global__ void __launch_bounds__(kColumnRangeThreads, kVector&& kEqual ? kColumnRangeBlocks : 1)
    column_ranges(const __grid_constant__ ColumnArgs<In> args) {
  constexpr int kCount = kColumns<In, Codes::Byte, kVector>;
  cuda::let_dependents_start();
  const ColumnPlace<In, kCount> place(args, blockIdx.x);
  const auto key_ranges = column_key_ranges<In, kCount, kVector>(
      args.input + place.column, rows_of<kEqual>(args.lines), place.first + threadIdx.y, place.last,
      blockDim.y, place.present, args.keep, args.spec);
  const std::int64_t base = place.column - threadIdx.x * kCount;
  reduce_columns<kColumnRangeThreads>(key_ranges, [&](int column, const Partial<In>& partial) {
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
  if (exists && args.inner == 1) {
#pragma unroll 4
    for (int chunk = threadIdx.y; chunk < args.chunks; chunk += blockDim.y)
      all.add(args.partials[chunk * args.columns + channel]);
  } else if (exists) {
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
  const auto parameters = column_parameters(all, args.spec);
  args.parameters.set(channel, parameters);
  store_scale(args.scale, channel, parameters.segment.scale, args.spec.scale_dtype);
  if (args.spec.mode == Mode::Asymmetric)
    cuda::store_once(args.zero_point + channel, parameters.segment.zero_point);
}

template <class In, Codes kCodes, bool kVector, class Rows, class Decide>
__device__ __forceinline__ void channel_codes(const ColumnArgs<In>& args, const Rows& rows,
                                              const Decide& decide) {
  constexpr int kCount = kColumns<In, kCodes, kVector>;
  __shared__ ColumnTile<Compute<In>> tile;
  const ColumnPlace<In, kCount> place(args, gridDim.x - 1 - blockIdx.x);
  const auto fill = [&] {
    cuda::wait_for_previous();
    const std::int64_t base = place.column - threadIdx.x * kCount;
    const int width = blockDim.x * kCount, thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (int i = thread; i < width; i += kColumnThreads) {
      const std::int64_t column = base + i;
      if (column < args.columns)
        tile.set(i, kCount, args.parameters.get(args.inner == 1 ? column : column / args.inner));
    }
    __syncthreads();
  };
  column_codes<In, kCodes, kVector>(args.input + place.column,
                                    args.output + place.column / kPerByte<kCodes>, rows,
                                    place.first + threadIdx.y, place.last, blockDim.y,
                                    place.present, fill, tile, args.spec, args.order, decide);
}

// Variant::Specialized, and aligned rows at equal steps.
template <class In, Codes kCodes, bool kAsymmetric>
__global__ void __launch_bounds__(kColumnThreads, kColumnCodeBlocks)
    specialized_channels(const __grid_constant__ ColumnArgs<In> args) {
  channel_codes<In, kCodes, true>(args, rows_of<true>(args.lines), [](const auto& use) {
    use(std::bool_constant<kAsymmetric>{}, std::true_type{},
        BoundsConstant<kFreeBounds<kCodes, kAsymmetric>>{});
  });
}

template <class In, Codes kCodes, bool kVector>
__global__ void __launch_bounds__(kColumnThreads)
    generic_channels(const __grid_constant__ ColumnArgs<In> args) {
  channel_codes<In, kCodes, kVector>(args, rows_of<false>(args.lines), [&](const auto& use) {
    by_generic<kCodes, true>(args.spec, use);
  });
}

// --- Groups of rows ----------------------------------------------------------------------------

template <class In, Codes kCodes, bool kVector>
__global__ void __launch_bounds__(kColumnThreads)
    column_groups(const __grid_constant__ ColumnArgs<In> args) {
  constexpr int kCount = kColumns<In, kCodes, kVector>;
  __shared__ ColumnTile<Compute<In>> tile;
  const std::int64_t line = blockIdx.x / static_cast<unsigned>(args.tiles);
  const std::int64_t across = blockIdx.x - static_cast<unsigned>(line) * args.tiles;
  const Offsets at = args.lines.offsets(line);
  const SteppedRows rows{args.input_step, args.output_step};
  const std::int64_t base = across * blockDim.x * kCount, column = base + threadIdx.x * kCount;
  const std::int64_t left = args.columns - column;
  const int present = left > kCount ? kCount : static_cast<int>(left);
  std::int64_t count = args.rows;
  if (args.groups > 1 && line / args.group_divisor % args.groups == args.groups - 1)
    count = args.tail;

  const In* input = args.input + at.at[kInput] + column;
  const auto key_ranges = column_key_ranges<In, kCount, kVector>(
      input, rows, threadIdx.y, count, blockDim.y, present, true, args.spec);
  reduce_columns<kColumnThreads>(key_ranges, [&](int place, const Partial<In>& partial) {
    if (base + place >= args.columns) return;
    const auto mine = column_parameters(partial, args.spec);
    tile.set(place, kCount, mine);
    store_scale(args.scale, at.at[kScale] + base + place, mine.segment.scale,
                args.spec.scale_dtype);
    if (args.spec.mode == Mode::Asymmetric)
      cuda::store_once(args.zero_point + at.at[kZeroPoint] + base + place, mine.segment.zero_point);
  });
  __syncthreads();
  column_codes<In, kCodes, kVector>(
      input, args.output + at.at[kOutput] + column / kPerByte<kCodes>, rows, threadIdx.y, count,
      blockDim.y, present, [] {}, tile, args.spec, args.order,
      [&](const auto& use) { by_generic<kCodes, !kVector>(args.spec, use); });
}

}  // namespace planq::affine
