// Elementwise kernels over any strides and scopes. An operator supplies what happens to a vector of
// elements and to a single one; this header finds them, and the parameters that they share.
//
// Vectors: every row is whole vectors and every operand is aligned to them. Long rows are cut into
// tiles, a block each, so that what a row has in common is found once for many vectors; where
// columns have something in common too, tiles are of several rows. Short rows share blocks. In
// columns each element of a vector has its own parameters, and a thread goes down many rows with
// them. Singles: everything else, a warp for a chunk of a row.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "core/elementwise.h"
#include "cuda/codes.cuh"
#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "ops/affine/affine.h"
#include "ops/affine/heuristics_sm90.h"

namespace planq::cuda {

inline constexpr int kElementThreads = 256;
// Vectors that a thread of short rows has in flight.
inline constexpr int kShortVectors = 2;
// How a tile is cut: vectors of a thread, the most threads, and how many such blocks the registers
// of a multiprocessor have to hold, because too few do not cover the time that loads take. Memory
// likes few large blocks of what reads more than it writes, and many small ones of everything else.
struct TileShape {
  int vectors, threads, blocks;
  bool by_warp;  // a thread's vectors are a warp apart, at constant offsets, or else a block
};
inline constexpr TileShape kReadingTile{4, 256, 0, true}, kWritingTile{2, 128, 0, false};
inline constexpr int kMediumVectors = kReadingTile.vectors;
// For outputs of few bytes, where what a thread prepares has to serve many vectors.
inline constexpr TileShape kLongTile{8, 128, 8, true};
template <class Op, bool kGrouped>
inline constexpr TileShape kTileOf = kGrouped ? Op::kGroupTile : Op::kTile;
// The tile whose threads take so many vectors: the operator's own, that of tensors of medium size,
// or that of small ones.
template <class Op, int kVectors, bool kGrouped>
constexpr TileShape shape_of() {
  TileShape shape = kTileOf<Op, kGrouped>;
  if (kVectors == shape.vectors) return shape;
  if (kVectors == kMediumVectors) return kReadingTile;
  shape.vectors = kVectors;
  return shape;
}
// Blocks for __launch_bounds__; 0 leaves them to the compiler, as for doubles, which take two
// registers each.
template <class Op>
constexpr int blocks_of(int blocks) {
  return sizeof(typename Op::C) == 8 ? 0 : blocks;
}
// How columns are cut: rows that a thread has in flight, whether it reads those to come while it
// works on them, and how many blocks the registers of a multiprocessor have to hold.
struct ColumnShape {
  int rows;
  bool prefetch;
  int blocks;
};
inline constexpr int kColumnThreads = 128;
// Stacked rows: with half as many in flight a thread waits longer than it saves.
inline constexpr int kStackRows = 8, kStackThreads = 128, kStackBlocks = 5;
// Elements of a row that a warp takes in the kernel for single elements.
inline constexpr std::int64_t kChunk = 512;

// Rows of fewer than 2^31, with multiplications in the place of divisions.
struct RowIndex {
  struct Axis {
    Divider extent, divisor;
    std::int64_t stride[kElementOperands];
  };
  std::int32_t rank = 0;
  Axis axes[kMaxRank];

  RowIndex() = default;
  explicit RowIndex(const IndexSpaceOf<kElementOperands>& rows) : rank(rows.rank) {
    for (int i = 0; i < rank; ++i) {
      axes[i].extent = Divider(static_cast<std::uint32_t>(rows.axes[i].extent));
      axes[i].divisor =
          Divider(static_cast<std::uint32_t>(std::min(rows.axes[i].divisor, kMaxIndex)));
      std::copy_n(rows.axes[i].stride.begin(), kElementOperands, axes[i].stride);
    }
  }

  __device__ __forceinline__ ElementOffsets offsets(std::uint32_t row) const {
    ElementOffsets result{};
    if (rank <= 1) {
      if (rank == 0) return result;
      const std::uint32_t group = axes[0].divisor.quotient(row);
#pragma unroll
      for (int k = 0; k < kElementOperands; ++k)
        result.at[k] = (k < kElementTensors ? row : group) * axes[0].stride[k];
      return result;
    }
#pragma unroll 1
    for (int i = rank - 1; i >= 0; --i) {
      const std::uint32_t rest = i > 0 ? axes[i].extent.quotient(row) : 0;
      const std::uint32_t position = row - rest * axes[i].extent.divisor;
      const std::uint32_t group = axes[i].divisor.quotient(position);
#pragma unroll
      for (int k = 0; k < kElementOperands; ++k)
        result.at[k] += (k < kElementTensors ? position : group) * axes[i].stride[k];
      row = rest;
    }
    return result;
  }
};

// A scale and a zero point as they are stored.
template <class C>
struct StoredParameters {
  C scale;
  C factor;  // of multiplication, if the operand is there
  std::int32_t zero_point;
};

// Where parameters come from.
struct GivenParameters {
  const void* scale = nullptr;
  const void* zero_point = nullptr;  // null: there are none
  DType scale_dtype = DType::Float32, zero_point_dtype = DType::Int32;
  NibbleOrder order = NibbleOrder::LowFirst;
  const void* factor = nullptr;  // in the compute type, where a range decided them

  // Reads parameters of several places, so that all loads are under way together.
  template <class C, int kCount, class PlaceOf>
  __device__ __forceinline__ void read(StoredParameters<C> (&to)[kCount],
                                       const PlaceOf& place_of) const {
    const auto read_scales = [&](auto type) {
      using S = decltype(type);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        to[i].scale = static_cast<C>(
            math::widen(load_single(static_cast<const S*>(scale) + place_of(i).at[kElementScale])));
    };
    if (scale_dtype == DType::Float32)
      read_scales(float{});
    else if (scale_dtype == DType::Float64)
      read_scales(double{});
    else if (scale_dtype == DType::Float16)
      read_scales(math::Half{});
    else
      read_scales(math::Bfloat16{});
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i].zero_point = 0;
    if (zero_point) {
      const bool wide = zero_point_dtype == DType::Int32;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const std::int64_t at = place_of(i).at[kElementZeroPoint];
        to[i].zero_point = wide ? load_single(static_cast<const std::int32_t*>(zero_point) + at)
                                : math::load_integer(zero_point, at, zero_point_dtype, order);
      }
    }
    if (factor) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        to[i].factor = load_single(static_cast<const C*>(factor) + place_of(i).at[kElementScale]);
    }
  }
  template <class C>
  __device__ __forceinline__ StoredParameters<C> read_one(const ElementOffsets& at) const {
    StoredParameters<C> one[1];
    read(one, [&](int) -> const ElementOffsets& { return at; });
    return one[0];
  }
};

// Where an operator's parameters come from: it says so where it is not as usual.
template <class Op>
struct GivenOfOp {
  using type = GivenParameters;
};
template <class Op>
  requires requires { typename Op::Given; }
struct GivenOfOp<Op> {
  using type = typename Op::Given;
};
template <class Op>
using GivenOf = typename GivenOfOp<Op>::type;

// What a kernel gets: the operator's own arguments, and the layout. Every row or vector reads the
// parameters at its own place of each operand: rows that share a scale by their strides may have
// zero points of their own.
template <class Op>
struct ElementArgs {
  typename Op::Args op;
  GivenOf<Op> given;
  RowIndex rows;
  Divider row_vectors;        // vectors in a row
  Divider vector_divisor;     // vectors that share a parameter
  Divider tiles;              // in a row
  std::uint32_t vectors = 0;  // in a row, which may be none before a tail
  std::uint32_t count = 0;    // of vectors
  std::uint32_t row_count = 0;
  std::int64_t length = 1;
  bool grouped = false;  // a row has several parameters
  int tail = 0;          // elements after the vectors of a single row that has one parameter
};

// The same for single elements: rows without the limit to 31 bits.
template <class Op>
struct SingleArgs {
  typename Op::Args op;
  GivenOf<Op> given;
  IndexSpaceOf<kElementOperands> rows;
  Divider divisor_in_chunk;
  std::int64_t length = 1, divisor = 1, chunks = 1, chunk_count = 0;
  bool grouped = false;
};

// One vector, or one element.
struct ElementPlace {
  ElementOffsets at;    // of the first element, in each tensor; of its parameters
  std::int64_t column;  // of the first element in its row
  std::int64_t index;   // of the first element in the tensor

  __device__ __forceinline__ void advance(std::int64_t elements) {
    column += elements;
    index += elements;
#pragma unroll
    for (int k = 0; k < kElementTensors; ++k) at.at[k] += elements;
  }
  __device__ __forceinline__ void move_parameters(std::int64_t count) {
    at.at[kElementScale] += count;
    at.at[kElementZeroPoint] += count;
  }
};

template <class Op>
__device__ __forceinline__ ElementPlace row_place(const ElementArgs<Op>& args, std::uint32_t row) {
  ElementPlace place;
  place.at = args.rows.offsets(row);
  place.column = 0;
  place.index = row * args.length;
  return place;
}

// Calls use() with a true constant for an operator that divides by DIVIDE, where one that
// multiplies gets a false one: one decision for all vectors of a thread.
template <template <class> class Args, class Op, class Use>
__device__ __forceinline__ void by_rule(const Args<Op>& args, const Use& use) {
  if constexpr (Op::kHasRule)
    by_rule(args.op.spec.quotient, use);
  else
    use(std::false_type{});
}

template <class Op>
__device__ __forceinline__ void run_tail(const ElementArgs<Op>& args) {
  const int first = static_cast<int>(threadIdx.x) * Op::kUnit;
  if (first >= args.tail || blockIdx.x != 0) return;
  const auto place_of = [&](int j) {
    ElementPlace place{};
    place.advance(args.length - args.tail + j);
    return place;
  };
  Op::run_single(args.op, args.given, place_of, first, min(args.tail - first, Op::kUnit));
}

// The elements of a vector that the fast path leaves alone, each from memory again: kept out of
// line because it is rare. kColumns: each element has its own parameters.
template <class Op, bool kColumns>
__device__ __noinline__ void run_slowly(const typename Op::Args& args, const GivenOf<Op>& given,
                                        ElementPlace place) {
  const auto place_of = [&](int j) {
    ElementPlace each = place;
    each.advance(j);
    if (kColumns) each.move_parameters(j);
    return each;
  };
#pragma unroll 1
  for (int j = 0; j < Op::kVector; j += Op::kUnit)
    Op::run_single(args, given, place_of, j, min(Op::kVector - j, Op::kUnit));
}

// Runs the vectors of a thread by one way to divide: all of them fast, so that their instructions
// mix, then what is left.
template <class Op, bool kDivide, bool kColumns, template <class> class Args, int kVectors,
          class InRange, class PlaceOf, class ParametersOf>
__device__ __forceinline__ void run_vectors(const Args<Op>& args,
                                            const typename Op::Vector (&vectors)[kVectors],
                                            const InRange& in_range, const PlaceOf& place_of,
                                            const ParametersOf& parameters_of) {
  typename Op::Result results[kVectors];
  bool done[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    done[i] = Op::template run<kDivide>(
        args.op, vectors[i], place_of(i), [&](int j) -> const auto& { return parameters_of(i, j); },
        results[i]);
  bool all = true;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) all = all && done[i];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (all && in_range(i)) Op::store(args.op, place_of(i), results[i]);
  if (all) return;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!in_range(i)) continue;
    if (done[i])
      Op::store(args.op, place_of(i), results[i]);
    else
      run_slowly<Op, kColumns>(args.op, args.given, place_of(i));
  }
}

// The same with what is stored for each vector, or for all of them.
template <class Op, int kVectors, int kParameters, class InRange, class PlaceOf>
__device__ __forceinline__ void run_stored(
    const ElementArgs<Op>& args, const typename Op::Vector (&vectors)[kVectors],
    const StoredParameters<typename Op::C> (&stored)[kParameters], const InRange& in_range,
    const PlaceOf& place_of) {
  typename Op::Parameters parameters[kParameters];
  by_rule(args, [&](auto divides) {
#pragma unroll
    for (int i = 0; i < kParameters; ++i)
      parameters[i] = Op::template parameters<divides>(args.op, args.given, stored[i]);
  });
  by_rule(args, [&](auto divides) {
    run_vectors<Op, divides, false>(
        args, vectors, in_range, place_of,
        [&](int i, int) -> const auto& { return parameters[kParameters == 1 ? 0 : i]; });
  });
}

// A block for a tile of a row. kGrouped: the row has several parameters, a vector one of them.
template <class Op, int kVectors, bool kGrouped>
__global__ void __launch_bounds__(shape_of<Op, kVectors, kGrouped>().threads,
                                  blocks_of<Op>(shape_of<Op, kVectors, kGrouped>().blocks))
    row_tiles(const __grid_constant__ ElementArgs<Op> args) {
  constexpr bool kByWarp = shape_of<Op, kVectors, kGrouped>().by_warp;
  const std::uint32_t row = args.tiles.quotient(blockIdx.x);
  const std::uint32_t tile = (blockIdx.x - row * args.tiles.divisor) * blockDim.x * kVectors;
  const std::uint32_t lane = kByWarp ? threadIdx.x % kWarp : threadIdx.x;
  const std::uint32_t step = kByWarp ? kWarp : blockDim.x;
  const std::uint32_t first = tile + (threadIdx.x - lane) * kVectors + lane;
  ElementPlace place = row_place(args, row);
  place.advance(std::int64_t{first} * Op::kVector);
  const auto in_range = [&](int i) { return first + i * step < args.vectors; };
  const auto place_of = [&](int i) {
    ElementPlace each = place;
    each.advance(static_cast<int>(i * step) * Op::kVector);
    if constexpr (kGrouped) {
      const std::uint32_t vector = min(first + i * step, args.vectors - 1);
      each.move_parameters(args.vector_divisor.quotient(vector));
    }
    return each;
  };
  typename Op::Vector vectors[kVectors] = {};
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (in_range(i)) vectors[i] = Op::load(args.op, place_of(i));
  // All parameters are under way before the first is needed.
  StoredParameters<typename Op::C> stored[kGrouped ? kVectors : 1];
  args.given.read(stored, [&](int i) { return place_of(i).at; });
  run_stored(args, vectors, stored, in_range, place_of);
  run_tail(args);
}

// Long rows with values that belong to their columns: a thread takes the same columns of several
// rows, so that it reads these values once.
template <class Op>
__global__ void __launch_bounds__(kStackThreads, blocks_of<Op>(kStackBlocks))
    row_stacks(const __grid_constant__ ElementArgs<Op> args) {
  const std::uint32_t stack = args.tiles.quotient(blockIdx.x);
  const std::uint32_t vector = (blockIdx.x - stack * args.tiles.divisor) * blockDim.x + threadIdx.x;
  if (vector >= args.vectors) return;
  const auto in_range = [&](int i) { return stack * kStackRows + i < args.row_count; };
  ElementPlace places[kStackRows];
  typename Op::Vector vectors[kStackRows] = {};
#pragma unroll
  for (int i = 0; i < kStackRows; ++i) {
    places[i] = row_place(args, min(stack * kStackRows + i, args.row_count - 1));
    places[i].advance(std::int64_t{vector} * Op::kVector);
    if (in_range(i)) vectors[i] = Op::load_codes(args.op, places[i]);
  }
  const auto place_of = [&](int i) -> const ElementPlace& { return places[i]; };
  StoredParameters<typename Op::C> stored[kStackRows];
  args.given.read(stored, [&](int i) -> const ElementOffsets& { return places[i].at; });
  const auto columns = Op::load_columns(args.op, places[0].column);
#pragma unroll
  for (int i = 0; i < kStackRows; ++i) vectors[i].columns = columns;
  run_stored(args, vectors, stored, in_range, place_of);
}

// Short rows, one after another; one parameter for each vector.
template <class Op>
__global__ void __launch_bounds__(kElementThreads)
    short_rows(const __grid_constant__ ElementArgs<Op> args) {
  const std::uint32_t first = blockIdx.x * (kElementThreads * kShortVectors) + threadIdx.x;
  if (first >= args.count) return;
  const auto in_range = [&](int i) { return first + i * kElementThreads < args.count; };
  ElementPlace places[kShortVectors];
  typename Op::Vector vectors[kShortVectors] = {};
#pragma unroll
  for (int i = 0; i < kShortVectors; ++i) {
    const std::uint32_t index = min(first + i * kElementThreads, args.count - 1);
    const std::uint32_t row = args.row_vectors.quotient(index);
    const std::uint32_t vector = index - row * args.row_vectors.divisor;
    places[i] = row_place(args, row);
    places[i].advance(static_cast<int>(vector) * Op::kVector);
    if (args.grouped) places[i].move_parameters(args.vector_divisor.quotient(vector));
    if (in_range(i)) vectors[i] = Op::load(args.op, places[i]);
  }
  StoredParameters<typename Op::C> stored[kShortVectors];
  args.given.read(stored, [&](int i) -> const ElementOffsets& { return places[i].at; });
  run_stored(args, vectors, stored, in_range,
             [&](int i) -> const ElementPlace& { return places[i]; });
}

// A parameter for each element of a row. Rows that follow one another with the same parameters are
// a group: those of one group of the scope, or all of an axis along which neither scale nor zero
// point moves. A thread goes down a share of such a group, in its own columns, and so may keep what
// it has read.
template <class Op>
struct ColumnArgs {
  typename Op::Args op;
  GivenOf<Op> given;
  RowIndex outer;                        // of the groups' axis, if there are more axes
  std::int32_t stride[kElementTensors];  // from row to row
  std::int64_t parameter_stride[2];      // from group to group
  std::int64_t length = 1;               // of a row
  std::uint32_t extent = 1, group_rows = 1, share_rows = 1;  // rows: of the axis, a group, a share
  Divider vectors, shares, groups;                           // in a row, a group, the axis
  std::int64_t count = 0;                                    // of threads
};

template <class Op>
__global__ void __launch_bounds__(kColumnThreads, blocks_of<Op>(Op::kColumnShape.blocks))
    column_vectors(const __grid_constant__ ColumnArgs<Op> args) {
  constexpr int kRows = Op::kColumnShape.rows;
  constexpr bool kPrefetch = Op::kColumnShape.prefetch;
  const std::uint32_t index = blockIdx.x * kColumnThreads + threadIdx.x;
  if (index >= args.count) return;
  const std::uint32_t share = args.vectors.quotient(index);
  const std::uint32_t all_groups = args.shares.quotient(share);
  const std::uint32_t outer = args.groups.quotient(all_groups);
  const std::uint32_t group = all_groups - outer * args.groups.divisor;
  const std::uint32_t first =
      group * args.group_rows + (share - all_groups * args.shares.divisor) * args.share_rows;
  const std::uint32_t last =
      min(min(first + args.share_rows, (group + 1) * args.group_rows), args.extent);
  if (first >= last) return;

  ElementPlace place{args.outer.offsets(outer), 0,
                     (std::int64_t{outer} * args.extent + first) * args.length};
  place.advance(std::int64_t{index - share * args.vectors.divisor} * Op::kVector);
#pragma unroll
  for (int k = 0; k < kElementTensors; ++k) place.at.at[k] += std::int64_t{first} * args.stride[k];
  place.at.at[kElementScale] += group * args.parameter_stride[0] + place.column;
  place.at.at[kElementZeroPoint] += group * args.parameter_stride[1] + place.column;

  std::uint32_t at_row = first;  // of `place`
  const auto row_of = [&](int i) {
    ElementPlace each = place;
    each.index += i * args.length;
#pragma unroll
    for (int k = 0; k < kElementTensors; ++k) each.at.at[k] += std::int64_t{i} * args.stride[k];
    return each;
  };
  // The loads of the rows to come are under way while those at hand are worked on, unless the
  // registers are wanted for something else.
  using Vectors = typename Op::Vector[kRows];
  const auto load_rows = [&](Vectors& vectors, std::uint32_t row) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (row + i < last)
        vectors[i] = Op::load(args.op, row_of(static_cast<int>(row - at_row) + i));
  };
  Vectors vectors = {};
  load_rows(vectors, first);

  using C = typename Op::C;
  StoredParameters<C> stored[Op::kVector];
  args.given.read(stored, [&](int j) {
    ElementOffsets at = place.at;
    at.at[kElementScale] += j;
    at.at[kElementZeroPoint] += j;
    return at;
  });
  by_rule(args, [&](auto divides) {
    typename Op::Parameters parameters[Op::kVector];
    bool fast_is_exact = true;
#pragma unroll
    for (int j = 0; j < Op::kVector; ++j) {
      parameters[j] = Op::template parameters<divides>(args.op, args.given, stored[j]);
      fast_is_exact = fast_is_exact && parameters[j].fast_is_exact;
    }
    // A vector is fast if all its columns are: one test in the place of many.
#pragma unroll
    for (int j = 0; j < Op::kVector; ++j) parameters[j].fast_is_exact = fast_is_exact;

    for (std::uint32_t row = first; row < last; row += kRows) {
      Vectors next = {};
      if (kPrefetch) load_rows(next, row + kRows);
      run_vectors<Op, divides, true>(
          args, vectors, [&](int i) { return row + i < last; }, row_of,
          [&](int, int j) -> const auto& { return parameters[j]; });
      place = row_of(kRows);
      at_row += kRows;
      if (!kPrefetch) load_rows(next, at_row);
#pragma unroll
      for (int i = 0; i < kRows; ++i) vectors[i] = next[i];
    }
  });
}

// Any layout: a warp for a chunk of a row, whose lanes take units of elements in turn. A unit is
// two elements where two codes share a byte of the output.
template <class Op>
__global__ void __launch_bounds__(kElementThreads)
    single_elements(const __grid_constant__ SingleArgs<Op> args) {
  const std::int64_t warps = std::int64_t{gridDim.x} * (kElementThreads / kWarp);
  std::int64_t warp = std::int64_t{blockIdx.x} * (kElementThreads / kWarp) + threadIdx.x / kWarp;
  for (; warp < args.chunk_count; warp += warps) {
    const std::int64_t row = args.chunks == 1 ? warp : warp / args.chunks;
    const std::int64_t start = (warp - row * args.chunks) * kChunk;
    const ElementOffsets at = args.rows.offsets(row);
    const std::int64_t group = args.grouped ? start / args.divisor : 0;
    const std::int64_t past = args.grouped ? start - group * args.divisor : 0;
    const int count = static_cast<int>(min(args.length - start, kChunk));
    for (int i = threadIdx.x % kWarp * Op::kUnit; i < count; i += kWarp * Op::kUnit) {
      const auto place_of = [&](int j) {
        ElementPlace place{at, 0, row * args.length};
        place.advance(start + j);
        if (args.grouped) {
          // At most kChunk groups lie between.
          const auto in_chunk = static_cast<std::uint32_t>(past + j);
          place.move_parameters(group + (args.divisor > kMaxIndex - kChunk
                                             ? past + j >= args.divisor
                                             : args.divisor_in_chunk.quotient(in_chunk)));
        }
        return place;
      };
      Op::run_single(args.op, args.given, place_of, i, min(count - i, Op::kUnit));
    }
  }
}

// --- Launch ------------------------------------------------------------------------------------

template <class Op>
bool takes_vectors(const ElementLayout& layout, const std::array<ElementOperand, 5>& operands) {
  constexpr std::array<int, kElementTensors> kBytes = Op::kVectorBytes;
  const bool one_row = layout.rows.rank == 0 && layout.step == 0;
  if (layout.length % Op::kVector != 0 && !one_row) return false;
  const bool columns = layout.step != 0 && layout.divisor == 1;
  if (layout.step != 0 && !columns && layout.divisor % Op::kVector != 0) return false;
  const std::int64_t rows = layout.rows.size();
  // Threads and rows have 31 bits; a thread of columns takes one vector at least.
  if (rows >= kMaxIndex || layout.elements() / Op::kVector >= kMaxIndex - (1 << 20)) return false;
  for (int k = 0; k < kElementTensors; ++k) {
    if (!operands[k].view) continue;
    if (reinterpret_cast<std::uintptr_t>(operands[k].view->data) % kBytes[k] != 0) return false;
    for (int i = 0; i < layout.rows.rank; ++i)
      if (layout.rows.axes[i].stride[k] % Op::kVector != 0) return false;
    // Threads of columns go from row to row by strides of 32 bits.
    if (columns && layout.rows.rank > 0 &&
        std::abs(layout.rows.axes[layout.rows.rank - 1].stride[k]) > kMaxIndex)
      return false;
  }
  return true;
}

// Shares are as long as leaves every multiprocessor with work, so that parameters are read for many
// rows.
template <class Op>
Status launch_columns(const typename Op::Args& op, const GivenOf<Op>& given,
                      const ElementLayout& layout, Bound& bound) {
  ColumnArgs<Op> args;
  args.op = op;
  args.given = given;
  args.length = layout.length;
  IndexSpaceOf<kElementOperands> outer = layout.rows;
  ElementAxis axis;
  if (outer.rank > 0) axis = outer.axes[--outer.rank];
  args.outer = RowIndex(outer);
  for (int k = 0; k < kElementTensors; ++k)
    args.stride[k] = static_cast<std::int32_t>(axis.stride[k]);
  std::copy_n(axis.stride.begin() + kElementScale, 2, args.parameter_stride);
  const bool same = args.parameter_stride[0] == 0 && args.parameter_stride[1] == 0;
  const std::int64_t group = std::min(same ? axis.extent : axis.divisor, axis.extent);
  const std::int64_t groups = (axis.extent + group - 1) / group,
                     columns = layout.length / Op::kVector;
  const auto threads_of = [&](std::int64_t share) {
    return outer.size() * groups * ((group + share - 1) / share) * columns;
  };
  std::int64_t share = 64;
  while (share > Op::kColumnShape.rows && threads_of(share) < affine::kManyThreads) share /= 2;
  args.extent = static_cast<std::uint32_t>(axis.extent);
  args.group_rows = static_cast<std::uint32_t>(group);
  args.share_rows = static_cast<std::uint32_t>(share);
  args.vectors = Divider(static_cast<std::uint32_t>(columns));
  args.shares = Divider(static_cast<std::uint32_t>((group + share - 1) / share));
  args.groups = Divider(static_cast<std::uint32_t>(groups));
  args.count = threads_of(share);
  Grid grid;
  grid.threads = dim3(kColumnThreads);
  grid.blocks = (args.count + kColumnThreads - 1) / kColumnThreads;
  return launch(column_vectors<Op>, grid, args, bound);
}

// Tiles of equal size, as few as fit a row.
template <class Op, int kVectors, bool kGrouped>
Status launch_tiles_of(ElementArgs<Op>& args, Grid& grid, Bound& bound) {
  constexpr int kThreads = shape_of<Op, kVectors, kGrouped>().threads;
  const std::int64_t row = args.row_vectors.divisor, most = kThreads * kVectors;
  const std::int64_t tiles = (row + most - 1) / most;
  const std::int64_t threads = (row + tiles * kVectors - 1) / (tiles * kVectors);
  grid.threads = dim3(static_cast<unsigned>((threads + kWarp - 1) / kWarp * kWarp));
  grid.blocks = std::int64_t{args.row_count} * tiles;
  args.tiles = Divider(static_cast<std::uint32_t>(tiles));
  return launch(row_tiles<Op, kVectors, kGrouped>, grid, args, bound);
}

// Doubles are cut like tensors of medium size, however many there are.
template <class Op>
inline constexpr bool kHasOneTile = sizeof(typename Op::C) == 8;

template <class Op, bool kGrouped>
Status launch_tiles(ElementArgs<Op>& args, Grid& grid, Bound& bound) {
  constexpr int kMost = kTileOf<Op, kGrouped>.vectors, kFewer = std::min(kMost, kMediumVectors);
  if constexpr (kHasOneTile<Op>) return launch_tiles_of<Op, kFewer, kGrouped>(args, grid, bound);
  if (args.count < affine::kSmallTensor) return launch_tiles_of<Op, 1, kGrouped>(args, grid, bound);
  return args.count < affine::kMediumTensor
             ? launch_tiles_of<Op, kFewer, kGrouped>(args, grid, bound)
             : launch_tiles_of<Op, kMost, kGrouped>(args, grid, bound);
}

// Whether an operator may have values that belong to columns.
template <class Op>
inline constexpr bool kHasColumns = requires { requires Op::kHasColumns; };

template <class Op>
Status launch_stacks(ElementArgs<Op>& args, Grid& grid, Bound& bound) {
  const std::int64_t tiles = (args.vectors + kStackThreads - 1) / kStackThreads;
  const std::int64_t threads = (args.vectors + tiles - 1) / tiles;
  grid.threads = dim3(static_cast<unsigned>((threads + kWarp - 1) / kWarp * kWarp));
  grid.blocks = tiles * ((std::int64_t{args.row_count} + kStackRows - 1) / kStackRows);
  args.tiles = Divider(static_cast<std::uint32_t>(tiles));
  return launch(row_stacks<Op>, grid, args, bound);
}

template <class Op>
Status launch_elements(const typename Op::Args& op, const GivenOf<Op>& given, const Shape& shape,
                       const Scope& scope, const std::array<ElementOperand, 5>& operands,
                       Bound& bound, bool whole = false) {
  const ElementLayout layout = element_layout(shape, scope, operands, whole);
  if (layout.elements() == 0) return Status::success();
  Grid grid;
  grid.threads = dim3(kElementThreads);
  if (!takes_vectors<Op>(layout, operands)) {
    SingleArgs<Op> args;
    args.op = op;
    args.given = given;
    args.rows = layout.rows;
    args.length = layout.length;
    args.divisor = layout.divisor;
    args.grouped = layout.step != 0;
    args.divisor_in_chunk =
        Divider(static_cast<std::uint32_t>(std::min(layout.divisor, kMaxIndex)));
    args.chunks = (layout.length + kChunk - 1) / kChunk;
    args.chunk_count = layout.rows.size() * args.chunks;
    grid.blocks = std::min<std::int64_t>((args.chunk_count + 7) / 8, 1 << 30);
    return launch(single_elements<Op>, grid, args, bound);
  }
  if (layout.step != 0 && layout.divisor == 1) return launch_columns<Op>(op, given, layout, bound);
  ElementArgs<Op> args;
  args.op = op;
  args.given = given;
  args.length = layout.length;
  args.grouped = layout.step != 0;
  const std::int64_t row_vectors = layout.length / Op::kVector, rows = layout.rows.size();
  args.rows = RowIndex(layout.rows);
  args.row_vectors = Divider(static_cast<std::uint32_t>(std::max<std::int64_t>(row_vectors, 1)));
  args.vectors = static_cast<std::uint32_t>(row_vectors);
  args.row_count = static_cast<std::uint32_t>(rows);
  args.count = static_cast<std::uint32_t>(rows * row_vectors);
  args.vector_divisor = Divider(static_cast<std::uint32_t>(
      std::min(std::max<std::int64_t>(layout.divisor / Op::kVector, 1), kMaxIndex)));
  if constexpr (kHasColumns<Op>) {
    if (!args.grouped && row_vectors >= affine::kLongRow && args.count >= affine::kSmallTensor &&
        rows > 1)
      return launch_stacks(args, grid, bound);
  }
  if (row_vectors >= affine::kLongRow || rows == 1) {
    args.tail = static_cast<int>(layout.length % Op::kVector);
    return args.grouped ? launch_tiles<Op, true>(args, grid, bound)
                        : launch_tiles<Op, false>(args, grid, bound);
  }
  constexpr int kPerBlock = kElementThreads * kShortVectors;
  grid.blocks = (std::int64_t{args.count} + kPerBlock - 1) / kPerBlock;
  return launch(short_rows<Op>, grid, args, bound);
}

template <class Op, bool kGrouped>
Status preload_tiles() {
  constexpr int kMost = kTileOf<Op, kGrouped>.vectors, kFewer = std::min(kMost, kMediumVectors);
  PLANQ_TRY((preload(row_tiles<Op, kFewer, kGrouped>)));
  if constexpr (!kHasOneTile<Op>) {
    PLANQ_TRY((preload(row_tiles<Op, 1, kGrouped>)));
    PLANQ_TRY((preload(row_tiles<Op, kMost, kGrouped>)));
  }
  return Status::success();
}

template <class Op>
Status preload_elements() {
  PLANQ_TRY((preload_tiles<Op, false>()));
  PLANQ_TRY((preload_tiles<Op, true>()));
  if constexpr (kHasColumns<Op>) PLANQ_TRY(preload(row_stacks<Op>));
  PLANQ_TRY(preload(short_rows<Op>));
  PLANQ_TRY(preload(column_vectors<Op>));
  return preload(single_elements<Op>);
}

}  // namespace planq::cuda
