// Launches the kernels of encode.cuh, absmax.cuh and nested.cuh, and decides which of them a
// problem takes.
#pragma once

#include <bit>

#include "cuda/launch.cuh"
#include "ops/codebook/codebook_cuda.h"
#include "ops/codebook/nested.cuh"

namespace planq::cuda {

static __device__ const DynamicSearch kDynamicSearch = make_dynamic_search();

// Thread blocks per multiprocessor.
template <class In>
inline constexpr int kEncodeBlocks = sizeof(In) == 8 ? 1 : 2;

template <class In, class Search, bool kMeasured, bool kDivide>
__global__ void __launch_bounds__(kEncodeThreads, kEncodeBlocks<In>)
    encode_tiles(const __grid_constant__ EncodeArgs<In> args) {
  encode_all_tiles<In, Search, kMeasured, kDivide>(args, kDynamicSearch);
}
template <class In, bool kNibble>
__global__ void __launch_bounds__(kCodebookThreads)
    encode_elements(const __grid_constant__ ElementEncodeArgs<In> args) {
  encode_all_elements<In, kNibble>(args, kDynamicSearch);
}
// Thread blocks per multiprocessor.
template <class C>
inline constexpr int kNestBlocks = sizeof(C) == 8 ? 2 : 4;

template <class C>
__global__ void __launch_bounds__(kCodebookThreads, kNestBlocks<C>)
    nest_blocks(const __grid_constant__ NestArgs<C> args) {
  nest_all<C>(args, kDynamicSearch);
}

template <class In, bool kNibble>
class EncodeLaunch {
 public:
  using C = math::Compute<In>;

  EncodeLaunch(const CodebookEncoding& encoding, const CodebookEncodingOperands& operands,
               int multiprocessors, Bound& bound)
      : encoding_(encoding),
        operands_(operands),
        multiprocessors_(multiprocessors),
        bound_(bound),
        places_(encoding.shape, operands.input),
        code_places_(kNibble ? ElementPlaces() : ElementPlaces(encoding.shape, operands.output)) {
    args_.input = static_cast<const In*>(operands.input.data);
    args_.output = static_cast<std::uint8_t*>(operands.output.data);
    args_.absmax = static_cast<C*>(operands.absmax);
    args_.source = source();
    args_.count = encoding.shape.elements();
    args_.quotient = operands.absmax ? encoding.quotient : Quotient::Reciprocal;
    args_.order = encoding.nibble_order;
    args_.code_order = code_order(encoding.codebook);
    args_.saturate = encoding.nonfinite == NonFinite::Saturate;
    args_.block_size = encoding.block_size;
  }

  Status run() {
    if (args_.count == 0) return Status::success();
    const bool tiles = takes_tiles();
    if (operands_.measured && !(tiles && measures_on_the_way())) PLANQ_TRY(measure());
    return tiles ? encode_by_tiles() : encode_by_elements();
  }

  static Status preload(bool stochastic) {
    PLANQ_TRY(cuda::preload(measure_blocks<In>));
    PLANQ_TRY(cuda::preload(finish_absmax<C>));
    PLANQ_TRY((cuda::preload(encode_elements<In, kNibble>)));
    if (stochastic) return Status::success();
    if constexpr (kNibble) {
      return preload_tiles<NibbleSearch>();
    } else {
      PLANQ_TRY(preload_tiles<CompiledByteSearch>());
      return preload_tiles<GivenByteSearch>();
    }
  }

 private:
  template <class Search>
  static Status preload_tiles() {
    PLANQ_TRY((cuda::preload(encode_tiles<In, Search, true, false>)));
    PLANQ_TRY((cuda::preload(encode_tiles<In, Search, true, true>)));
    PLANQ_TRY((cuda::preload(encode_tiles<In, Search, false, false>)));
    return cuda::preload(encode_tiles<In, Search, false, true>);
  }

  static constexpr int kPer = kPerVector<In>;

  CodebookSource source() const {
    CodebookSource source;
    if (encoding_.codebook == Codebook::Given) {
      source.given = static_cast<const float*>(operands_.codebook);
      source.entries = static_cast<int>(encoding_.entries);
    } else if (kNibble) {
      source.nibbles = math::nibble_table(encoding_.codebook);
    }
    return source;
  }
  bool stochastic() const { return encoding_.rounding == Rounding::Stochastic; }
  bool one_block() const { return !operands_.absmax || args_.block_size >= args_.count; }
  bool takes_tiles() const {
    return !stochastic() && places_.consecutive() && code_places_.consecutive() &&
           aligned_to(args_.input, 16) && aligned_to(args_.output, kCodeBytes<In, kNibble>) &&
           (one_block() || args_.block_size % kPer == 0) &&
           args_.count / kPer < kMaxIndex - (1 << 24);
  }
  bool measures_on_the_way() const {
    const std::int64_t vectors = args_.block_size / kPer;
    return args_.block_size % kPer == 0 && vectors <= kEncodeTile &&
           vectors >= 1 << TileKeys<In>::kLeastShift && (vectors & (vectors - 1)) == 0;
  }

  Status measure() const {
    MeasureArgs<In> args;
    args.input = args_.input;
    args.absmax = args_.absmax;
    args.places = places_;
    args.count = args_.count;
    args.block_size = std::min(args_.block_size, args_.count);
    args.pieces = groups_of(args.block_size, kMeasurePiece);
    const std::int64_t blocks = groups_of(args.count, args.block_size);
    args.total = blocks * args.pieces;
    args.saturate = args_.saturate;
    args.vectors = places_.consecutive() && aligned_to(args.input, 16) &&
                   (blocks == 1 || args.block_size % kPer == 0);
    // Each lane loads about four times.
    const std::int64_t loads = groups_of(args.block_size, (args.vectors ? kPer : 1) * 4);
    args.lanes = static_cast<int>(
        std::bit_ceil(static_cast<std::uint64_t>(std::min<std::int64_t>(loads, kWarp))));
    if (args.pieces > 1)
      PLANQ_TRY(clear(args.absmax, static_cast<std::size_t>(blocks) * sizeof(C), bound_));
    Grid grid{groups_of(args.total * args.lanes, kCodebookThreads), dim3(kCodebookThreads)};
    PLANQ_TRY(launch(measure_blocks<In>, grid, args, bound_));
    if (args.pieces == 1) return Status::success();
    grid.blocks = groups_of(blocks, kCodebookThreads);
    return launch(finish_absmax<C>, grid, FinishArgs<C>{args.absmax, blocks}, bound_);
  }

  Status encode_by_tiles() {
    args_.vectors = static_cast<std::uint32_t>(args_.count / kPer);
    args_.tail = static_cast<std::uint32_t>(args_.count % kPer);
    const bool measured = operands_.measured && measures_on_the_way();
    if (measured)
      args_.block_shift = std::countr_zero(static_cast<std::uint64_t>(args_.block_size / kPer));
    else
      args_.block_vectors =
          Divider(static_cast<std::uint32_t>(one_block() ? kMaxIndex : args_.block_size / kPer));
    if constexpr (kNibble)
      return launch_tiles<NibbleSearch>(measured);
    else
      return args_.source.given ? launch_tiles<GivenByteSearch>(measured)
                                : launch_tiles<CompiledByteSearch>(measured);
  }
  // Multiprocessors are not equally fast, so a grid has more thread blocks than run at a time. How
  // many more was measured for 8-bit codes. Each thread block needs enough tiles to be worth
  // loading its table, and none may wait for the warps of another.
  std::int64_t encode_blocks(bool measured) const {
    constexpr std::int64_t kWorthwhile = 7, kMostTurns = 8;
    const std::int64_t tiles = args_.vectors / kEncodeTile + 1;
    const std::int64_t slots = std::int64_t{multiprocessors_} * kEncodeBlocks<In>;
    const bool waits = measured && args_.block_size > kPer * kWarpVectors;
    const std::int64_t turns =
        kNibble || args_.source.given || waits
            ? 1
            : std::clamp<std::int64_t>(tiles / slots / kWorthwhile, 1, kMostTurns);
    return even_blocks(tiles, slots * turns);
  }
  template <class Search>
  Status launch_tiles(bool measured) const {
    const Grid grid{encode_blocks(measured), dim3(kEncodeThreads)};
    const auto start = [&](auto kernel, auto dividing_kernel) {
      return launch(args_.quotient == Quotient::Divide ? dividing_kernel : kernel, grid, args_,
                    bound_);
    };
    return measured
               ? start(encode_tiles<In, Search, true, false>, encode_tiles<In, Search, true, true>)
               : start(encode_tiles<In, Search, false, false>,
                       encode_tiles<In, Search, false, true>);
  }

  Status encode_by_elements() const {
    ElementEncodeArgs<In> args;
    args.tile = args_;
    args.places = places_;
    args.code_places = code_places_;
    args.bytes = kNibble ? groups_of(args_.count, 2) : args_.count;
    args.stochastic = stochastic();
    args.random = RandomArgs(operands_.seed, operands_.offset);
    const Grid grid{std::min<std::int64_t>(groups_of(args.bytes, kCodebookThreads),
                                           std::int64_t{multiprocessors_} * 8),
                    dim3(kCodebookThreads)};
    return launch(encode_elements<In, kNibble>, grid, args, bound_);
  }

  const CodebookEncoding& encoding_;
  const CodebookEncodingOperands& operands_;
  int multiprocessors_;
  Bound& bound_;
  ElementPlaces places_, code_places_;
  EncodeArgs<In> args_{};
};

template <class In>
Status preload_encoding(const CodebookEncoding& encoding) {
  const bool stochastic = encoding.rounding == Rounding::Stochastic;
  return is_four_bit(encoding.output_dtype) ? EncodeLaunch<In, true>::preload(stochastic)
                                            : EncodeLaunch<In, false>::preload(stochastic);
}

template <class In>
Status launch_encoding(const CodebookEncoding& encoding, const CodebookEncodingOperands& operands,
                       int multiprocessors, Bound& bound) {
  return is_four_bit(encoding.output_dtype)
             ? EncodeLaunch<In, true>(encoding, operands, multiprocessors, bound).run()
             : EncodeLaunch<In, false>(encoding, operands, multiprocessors, bound).run();
}

template <class In>
Status preload_nesting() {
  using C = math::Compute<In>;
  PLANQ_TRY(preload(sum_leaves<C>));
  return preload(nest_blocks<C>);
}

template <class In>
Status launch_nesting(const NestingOperands& operands, std::int64_t count,
                      std::int64_t nested_block_size, int multiprocessors, Bound& bound) {
  using C = math::Compute<In>;
  auto* sums = static_cast<C*>(operands.sums);
  const auto* values = static_cast<const C*>(operands.absmax);
  std::int64_t left = count;
  while (left > kLastSums) {
    const SumLevel level(left);
    Grid grid{groups_of(level.sums, kCodebookThreads / kWarp), dim3(kCodebookThreads)};
    grid.dependent = true;
    PLANQ_TRY(launch(sum_leaves<C>, grid, SumArgs<C>{values, sums, left, level.sums}, bound));
    values = sums;
    sums += level.room;
    left = level.sums;
  }
  NestArgs<C> args;
  args.absmax = static_cast<const C*>(operands.absmax);
  args.sums = values;
  args.left = left;
  args.mean = static_cast<C*>(operands.mean);
  args.output = static_cast<std::uint8_t*>(operands.codes);
  args.nested_absmax = static_cast<C*>(operands.nested_absmax);
  args.count = count;
  args.block_size = nested_block_size;
  args.blocks = groups_of(count, nested_block_size);
  args.quads =
      nested_block_size % 4 == 0 && aligned_to(args.absmax, 16) && aligned_to(args.output, 4);
  const std::int64_t blocks = groups_of(args.blocks, kCodebookThreads / kWarp);
  Grid grid{even_blocks(blocks, std::int64_t{multiprocessors} * kNestBlocks<C>),
            dim3(kCodebookThreads)};
  grid.dependent = count > 0;  // if count is 0, no kernel precedes it
  return launch(nest_blocks<C>, grid, args, bound);
}

}  // namespace planq::cuda

// What a file of one element type instantiates.
#define PLANQ_ENCODING(In)                                                                       \
  template ::planq::Status planq::cuda::preload_encoding<In>(const CodebookEncoding&);           \
  template ::planq::Status planq::cuda::launch_encoding<In>(                                     \
      const CodebookEncoding&, const CodebookEncodingOperands&, int, Bound&);                    \
  template ::planq::Status planq::cuda::preload_nesting<In>();                                   \
  template ::planq::Status planq::cuda::launch_nesting<In>(const NestingOperands&, std::int64_t, \
                                                           std::int64_t, int, Bound&)
