// Encodes elements to codes of a codebook. Contiguous tensors are encoded by tiles of whole
// vectors; the absmax of their blocks are measured from the tile, or read from memory. Everything
// else is encoded element by element, with absmax from memory. A thread block processes tile after
// tile, so that it loads its tables into shared memory only once.
#pragma once

#include <algorithm>
#include <array>

#include "math/philox.h"
#include "ops/affine/affine.cuh"
#include "ops/codebook/absmax.cuh"
#include "ops/codebook/codebook.h"
#include "ops/codebook/layout.cuh"
#include "ops/codebook/search.cuh"

namespace planq::cuda {

inline constexpr int kEncodeTile = kTileVectors * kEncodeThreads;

template <class In>
struct EncodeArgs {
  using C = math::Compute<In>;
  const In* input;
  std::uint8_t* output;
  C* absmax;  // one a block; null: elements are quotients as they are
  CodebookSource source;
  std::int64_t count;           // of elements
  std::uint32_t vectors, tail;  // whole vectors, and elements after them
  Divider block_vectors;
  int block_shift;  // of the vectors of a block, where it is measured on the way
  Quotient quotient;
  NibbleOrder order;
  CodeOrder code_order;
  bool saturate;
  std::int64_t block_size;
};

// --- Codes -------------------------------------------------------------------------------------

// The divisor of a vector's elements, and its reciprocal.
template <class C>
struct VectorBlock {
  C absmax, inverse;
};

// A product with the reciprocal is corrected to the IEEE quotient. The correction is exact if
// element and quotient are at least this large.
template <class C>
inline constexpr C kSmallDividend = sizeof(C) == 4 ? C(0x1p-100) : C(0x1p-900);

// 8-bit searches take quotients scaled by 2^-kByteLowered ("lowered"). Whether that factor is part
// of the reciprocal of absmax.
template <class Search, class C, bool kDivide>
inline constexpr bool kLowersInverse = !Search::kNibble && !kDivide && sizeof(C) == 4;

// Whether the fast path can divide by this absmax: its reciprocal, lowered or not, is rounded
// correctly.
template <bool kLowers, class C>
__device__ __forceinline__ bool divides_fast(C absmax) {
  constexpr C kLargest = kLowers ? C{kLargestLowered} : kLargeScale<C>;
  return absmax >= kSmallScale<C> && absmax <= kLargest;
}

// The reciprocal that elements are multiplied by, lowered if the search needs it.
template <bool kLowers, class C>
__device__ __forceinline__ C searched_inverse(C absmax) {
  const C inverse = inverse_of(absmax);
  if constexpr (kLowers) return inverse * kByteFactor;
  return inverse;
}
// The divisor for a block of zeros may be any number but 0.
template <class C>
__device__ __forceinline__ C divisor_of(C absmax) {
  return absmax == C{0} ? C{1} : absmax;
}

// The quotient rounded to float for the search, as by math::searched().
__device__ __forceinline__ float as_searched(float y, bool) { return y; }
__device__ __forceinline__ float as_searched(double y, bool mirrored) {
  return mirrored && y < 0 ? __double2float_rd(y) : __double2float_ru(y);
}

// The quotient as the search takes it, lowered if needed.
template <class In, class Search, bool kDivide, bool kBounded>
__device__ __forceinline__ float searched_quotient(math::Compute<In> x,
                                                   const VectorBlock<math::Compute<In>>& block,
                                                   bool mirrored, bool& needs_slow_path) {
  using C = math::Compute<In>;
  constexpr bool kLowered = kLowersInverse<Search, C, kDivide>;
  // A zero keeps its sign, because the sign chooses the bucket.
  const C q = signed_quotient<kDivide>(x, block.absmax, block.inverse);
  if (kDivide)
    needs_slow_path |= x != C{0} && block.inverse != C{0} &&
                       !(fabs(x) >= kSmallDividend<C> && fabs(q) >= kSmallDividend<C>);
  float y = as_searched(q, mirrored);
  if (kBounded) {
    constexpr float kBound = kLowered ? kLargestSearched * kByteFactor : kLargestSearched;
    needs_slow_path |= q != q;
    y = fminf(fmaxf(y, -kBound), kBound);
  }
  return Search::kNibble || kLowered ? y : y * kByteFactor;
}

// Selects bytes of two words (prmt). A selector with its highest bit set replicates the sign bit of
// its byte.
__device__ __forceinline__ std::uint32_t chosen_bytes(std::uint32_t a, std::uint32_t b,
                                                      std::uint32_t selectors) {
  std::uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selectors));
  return result;
}
// The signs of four elements of a vector: a byte of ones for each negative element.
template <class In>
__device__ __forceinline__ std::uint32_t sign_bytes(const uint4& v, int quad) {
  if constexpr (sizeof(In) == 2)
    return quad == 0 ? chosen_bytes(v.x, v.y, 0xFDB9) : chosen_bytes(v.z, v.w, 0xFDB9);
  else if constexpr (sizeof(In) == 4)
    return __byte_perm(chosen_bytes(v.x, v.y, 0x00FB), chosen_bytes(v.z, v.w, 0x00FB), 0x5410);
  else
    return chosen_bytes(v.y, v.w, 0x00FB);
}
// The signs of all elements of a vector as nibbles of ones, the first of two in the high nibble.
template <class In>
__device__ __forceinline__ std::uint32_t sign_nibbles(const uint4& v) {
  std::uint32_t even, odd;
  if constexpr (sizeof(In) == 2) {
    const std::uint32_t a = chosen_bytes(v.x, v.y, 0xFBD9), b = chosen_bytes(v.z, v.w, 0xFBD9);
    even = __byte_perm(a, b, 0x5410);
    odd = __byte_perm(a, b, 0x7632);
  } else if constexpr (sizeof(In) == 4) {
    even = chosen_bytes(v.x, v.z, 0x00FB);
    odd = chosen_bytes(v.y, v.w, 0x00FB);
  } else {
    even = chosen_bytes(v.y, 0, 0x000B);
    odd = chosen_bytes(v.w, 0, 0x000B);
  }
  return (even & 0xF0F0F0F0u) | (odd & 0x0F0F0F0Fu);
}

// The 4-bit ranks of a vector, the first of two in the high nibble.
template <class In>
__device__ __forceinline__ Word<kCodeBytes<In, true>> packed_nibbles(
    const std::uint32_t (&ranked)[kPerVector<In>], const uint4& v) {
  constexpr int kCount = kPerVector<In>;
  std::uint32_t ranks = 0;
#pragma unroll
  for (int j = 0; j < kCount; ++j) ranks = __funnelshift_l(ranked[j], ranks, 4);
  if constexpr (kCount > 2) ranks = __byte_perm(ranks, 0, kCount == 8 ? 0x0123 : 0x4401);
  return static_cast<Word<kCodeBytes<In, true>>>(ranks ^ sign_nibbles<In>(v));
}
template <class In>
__device__ __forceinline__ Word<kCodeBytes<In, false>> packed_bytes(
    const std::uint32_t (&ranked)[kPerVector<In>], const uint4& v) {
  constexpr int kCount = kPerVector<In>;
  const auto quad = [&](int q) {
    const std::uint32_t first = __byte_perm(ranked[4 * q], ranked[4 * q + 1], 0x0073);
    if constexpr (kCount == 2) return first ^ sign_bytes<In>(v, q);
    const std::uint32_t second = __byte_perm(ranked[4 * q + 2], ranked[4 * q + 3], 0x0073);
    return __byte_perm(first, second, 0x5410) ^ sign_bytes<In>(v, q);
  };
  if constexpr (kCount == 8)
    return static_cast<std::uint64_t>(quad(1)) << 32 | quad(0);
  else
    return static_cast<Word<kCodeBytes<In, false>>>(quad(0));
}

// The ranks of a vector's elements, packed as codes are stored.
template <class In, class Search, bool kDivide, bool kBounded>
__device__ __forceinline__ auto fast_ranks(const typename Search::Base& base, const uint4& v,
                                           const VectorBlock<math::Compute<In>>& block,
                                           bool mirrored, bool& needs_slow_path) {
  constexpr int kCount = kPerVector<In>;
  std::uint32_t ranked[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j)
    ranked[j] = Search::lookup(searched_quotient<In, Search, kDivide, kBounded>(
                                   element_of<In>(v, j), block, mirrored, needs_slow_path),
                               base);
  if constexpr (Search::kNibble)
    return packed_nibbles<In>(ranked, v);
  else
    return packed_bytes<In>(ranked, v);
}

// Turns packed 4-bit ranks into codes. Not inlined, so that ascending tables, which do not need it,
// have less code.
template <CodeOrder kOrder>
__device__ __forceinline__ uint4 ordered(const uint4& ranks) {
  return make_uint4(codes_of_ranks(ranks.x, kOrder), codes_of_ranks(ranks.y, kOrder),
                    codes_of_ranks(ranks.z, kOrder), codes_of_ranks(ranks.w, kOrder));
}
__device__ __forceinline__ std::uint32_t swapped_nibbles(std::uint32_t word) {
  return (word & 0x0F0F0F0Fu) << 4 | (word >> 4 & 0x0F0F0F0Fu);
}
inline __device__ __noinline__ uint4 ordered_codes(uint4 words, CodeOrder code_order,
                                                   NibbleOrder order) {
  if (code_order == CodeOrder::Descending)
    words = ordered<CodeOrder::Descending>(words);
  else if (code_order == CodeOrder::DescendingWithoutEight)
    words = ordered<CodeOrder::DescendingWithoutEight>(words);
  else if (code_order == CodeOrder::SignAndMagnitude)
    words = ordered<CodeOrder::SignAndMagnitude>(words);
  if (order == NibbleOrder::HighFirst) return words;
  return make_uint4(swapped_nibbles(words.x), swapped_nibbles(words.y), swapped_nibbles(words.z),
                    swapped_nibbles(words.w));
}

// The code of one element, without the restrictions of the fast path.
template <class C, int kCapacity>
__device__ __forceinline__ std::uint8_t any_code(C x, const math::BlockDivision<C>& division,
                                                 const math::CodebookTable<kCapacity>& table) {
  return division.empty ? table.zero : math::nearest_code(math::divided(x, division), table);
}

// Reads the vectors of a thread from memory again and encodes them element by element. Not inlined
// because it is rare.
template <class In, bool kNibble, bool kMeasured, class Table>
__device__ __noinline__ void encode_slowly(const EncodeArgs<In>& args, const Table& table,
                                           std::uint32_t first,
                                           std::array<math::Compute<In>, kTileVectors> absmax) {
  constexpr int kStep = kNibble ? 2 : 1;
#pragma unroll 1
  for (int i = 0; i < kTileVectors; ++i) {
    const std::uint32_t at = first + i * kWarp;
    if (at > args.vectors) return;
    const int count = at < args.vectors ? kPerVector<In> : static_cast<int>(args.tail);
    // A measured absmax may be infinite; PROPAGATE then makes it NaN.
    const auto division =
        math::block_division(kMeasured ? math::stored_absmax(absmax[i]) : absmax[i], args.quotient);
    const In* input = args.input + std::int64_t{at} * kPerVector<In>;
    std::uint8_t* output = args.output + std::int64_t{at} * kCodeBytes<In, kNibble>;
#pragma unroll 1
    for (int j = 0; j < count; j += kStep) {
      std::uint8_t codes[2] = {0, 0};
      for (int k = 0; k < kStep && j + k < count; ++k)
        codes[k] = any_code(math::widen(load_single(input + j + k)), division, table);
      store_once(output + j / kStep,
                 kNibble ? math::pack_nibbles(codes[0], codes[1], args.order) : codes[0]);
    }
  }
}

// --- Tiles -------------------------------------------------------------------------------------

// A vector at the end of the tensor, or beyond it.
template <class In>
__device__ __noinline__ uint4 load_last_vector(const EncodeArgs<In>& args, std::uint32_t at) {
  const In* from = args.input + std::int64_t{at} * kPerVector<In>;
  if (at < args.vectors) return load_once(from);
  uint4 v = make_uint4(0, 0, 0, 0);
  if (at > args.vectors) return v;
  In elements[kPerVector<In>];
#pragma unroll
  for (unsigned j = 0; j < kPerVector<In>; ++j)
    elements[j] = j < args.tail ? load_single(from + j) : In{};
  memcpy(&v, elements, sizeof v);
  return v;
}
template <class In>
__device__ __forceinline__ void load_tile(const EncodeArgs<In>& args, std::uint32_t first,
                                          uint4 (&vectors)[kTileVectors]) {
  const In* from = args.input + std::int64_t{first} * kPerVector<In>;
  if (first + (kTileVectors - 1) * kWarp < args.vectors) {
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i)
      vectors[i] = load_once(from + i * kWarp * kPerVector<In>);
  } else {
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) vectors[i] = load_last_vector(args, first + i * kWarp);
  }
}

// The divisors of the vectors of a thread.
template <class C>
struct ThreadBlocks {
  VectorBlock<C> of[kTileVectors];
  C own;               // the absmax of this lane's vector, if absmax were measured
  bool fast_is_exact;  // the fast path is exact for all, except for quotients that it reports
};

// Measures the absmax of the blocks and stores them. Each of four lanes computes the divisor of one
// of their four vectors.
template <class In, bool kDivide, bool kLowers>
__device__ __forceinline__ ThreadBlocks<math::Compute<In>> measured_blocks(
    const EncodeArgs<In>& args, std::uint32_t first, const uint4 (&vectors)[kTileVectors],
    typename TileKeys<In>::Bits* of_warps) {
  using C = math::Compute<In>;
  using Keys = TileKeys<In>;
  ThreadBlocks<C> blocks;
  blocks.fast_is_exact = true;
  Keys keys(vectors);
  if (args.saturate && keys.nonfinite()) {
    blocks.fast_is_exact = false;
    uint4 finite[kTileVectors];
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) finite[i] = finite_only<In>(vectors[i]);
    keys = Keys(finite);
  }
  blocks.own = magnitude_of<In>(keys.share(args.block_shift, of_warps));
  const std::uint32_t lane = threadIdx.x % kWarp, mask = (1u << args.block_shift) - 1;
  const std::uint32_t in_block = lane & mask,
                      at = first - in_block + Keys::vector_of_lane() * kWarp;
  if (in_block < kTileVectors && (at & mask) == 0 && at < args.vectors + (args.tail > 0))
    store_single(args.absmax + (at >> args.block_shift), math::stored_absmax(blocks.own));
  const C divisor = divisor_of(blocks.own);
  blocks.fast_is_exact =
      __all_sync(kAllLanes, blocks.fast_is_exact && divides_fast<kLowers>(divisor));
  const C inverse = searched_inverse<kLowers>(divisor);
#pragma unroll
  for (int i = 0; i < kTileVectors; ++i) {
    blocks.of[i].inverse = Keys::of_vector(inverse, i);
    if constexpr (kDivide) blocks.of[i].absmax = Keys::of_vector(divisor, i);
  }
  return blocks;
}

// Loads given absmax. Vectors beyond the end take that of the last vector.
template <class In, bool kLowers>
__device__ __forceinline__ ThreadBlocks<math::Compute<In>> given_blocks(const EncodeArgs<In>& args,
                                                                        std::uint32_t first) {
  using C = math::Compute<In>;
  ThreadBlocks<C> blocks;
  blocks.fast_is_exact = true;
#pragma unroll
  for (int i = 0; i < kTileVectors; ++i) {
    const std::uint32_t at = min(first + i * kWarp, args.vectors - (args.tail == 0));
    VectorBlock<C>& block = blocks.of[i];
    block.absmax = args.absmax ? load_single(args.absmax + args.block_vectors.quotient(at)) : C{1};
    blocks.fast_is_exact = blocks.fast_is_exact && divides_fast<kLowers>(block.absmax);
    block.inverse = searched_inverse<kLowers>(block.absmax);
  }
  return blocks;
}

template <class In, class Search, bool kMeasured, bool kDivide>
__device__ __forceinline__ void encode_tile(const EncodeArgs<In>& args, const Search& search,
                                            const DynamicSearch& dynamic, bool fits,
                                            std::uint32_t first,
                                            const uint4 (&vectors)[kTileVectors],
                                            typename TileKeys<In>::Bits* of_warps) {
  using C = math::Compute<In>;
  constexpr bool kNibble = Search::kNibble, kLowers = kLowersInverse<Search, C, kDivide>;
  constexpr int kBytes = kCodeBytes<In, kNibble>;
  ThreadBlocks<C> blocks;
  if constexpr (kMeasured)
    blocks = measured_blocks<In, kDivide, kLowers>(args, first, vectors, of_warps);
  else
    blocks = given_blocks<In, kLowers>(args, first);
  bool needs_slow_path = true;
  // Other blocks have unbounded quotients, whose look-ups would be outside of the tables.
  if (fits && blocks.fast_is_exact) {
    needs_slow_path = first + (kTileVectors - 1) * kWarp >= args.vectors;
    Word<kBytes> words[kTileVectors];
    const auto base = search.base(args.source);
    const bool mirrored = args.code_order == CodeOrder::SignAndMagnitude;
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i)
      words[i] = fast_ranks<In, Search, kDivide, !kMeasured>(base, vectors[i], blocks.of[i],
                                                             mirrored, needs_slow_path);
    if constexpr (kNibble) {
      if (args.code_order != CodeOrder::Ascending || args.order == NibbleOrder::LowFirst) {
        const uint4 codes = ordered_codes(make_uint4(words[0], words[1], words[2], words[3]),
                                          args.code_order, args.order);
        words[0] = static_cast<Word<kBytes>>(codes.x);
        words[1] = static_cast<Word<kBytes>>(codes.y);
        words[2] = static_cast<Word<kBytes>>(codes.z);
        words[3] = static_cast<Word<kBytes>>(codes.w);
      }
    }
    if (!needs_slow_path) {
      std::uint8_t* output = args.output + std::int64_t{first} * kBytes;
#pragma unroll
      for (int i = 0; i < kTileVectors; ++i)
        store_word<kBytes>(output + i * kWarp * kBytes, words[i]);
    }
  }
  if (!__any_sync(kAllLanes, needs_slow_path)) return;
  std::array<C, kTileVectors> absmax;
#pragma unroll
  for (int i = 0; i < kTileVectors; ++i)
    absmax[i] = kMeasured ? TileKeys<In>::of_vector(blocks.own, i) : blocks.of[i].absmax;
  if (needs_slow_path)
    encode_slowly<In, kNibble, kMeasured>(args, search.table(dynamic), first, absmax);
}

// `dynamic` is the table for 8-bit codes without a given codebook.
template <class In, class Search, bool kMeasured, bool kDivide>
__device__ __forceinline__ void encode_all_tiles(const EncodeArgs<In>& args,
                                                 const DynamicSearch& dynamic) {
  __shared__ Search search;
  __shared__ typename TileKeys<In>::Bits of_warps[2][kEncodeThreads / kWarp];
  const std::uint32_t step = gridDim.x * kEncodeTile;
  const std::uint32_t lane = threadIdx.x / kWarp * kWarpVectors + threadIdx.x % kWarp;
  uint4 vectors[kTileVectors];
  load_tile(args, blockIdx.x * kEncodeTile + lane, vectors);
  const bool fits = search.build(args.source, dynamic);
  const auto encode = [&](std::uint32_t tile, const uint4(&at_hand)[kTileVectors],
                          uint4(&next)[kTileVectors], int turn) {
    load_tile(args, tile + step + lane, next);
    encode_tile<In, Search, kMeasured, kDivide>(args, search, dynamic, fits, tile + lane, at_hand,
                                                of_warps[turn]);
  };
  uint4 others[kTileVectors];
#pragma unroll 1
  for (std::uint32_t tile = blockIdx.x * kEncodeTile; tile <= args.vectors; tile += 2 * step) {
    encode(tile, vectors, others, 0);
    if (tile + step > args.vectors) break;
    encode(tile + step, others, vectors, 1);
  }
}

// --- Any layout --------------------------------------------------------------------------------

// The random numbers of stochastic rounding.
struct RandomArgs {
  const std::int64_t *seed, *offset;  // on the device, or null
  std::int64_t seed_value, offset_value;

  RandomArgs() = default;
  RandomArgs(const OperandView& seed_view, const OperandView& offset_view)
      : seed(static_cast<const std::int64_t*>(seed_view.data)),
        offset(static_cast<const std::int64_t*>(offset_view.data)),
        seed_value(seed_view.value),
        offset_value(offset_view.value) {}
  template <class C>
  __device__ __forceinline__ C uniform(std::int64_t index) const {
    return math::element_uniform<C>(static_cast<std::uint64_t>(seed ? *seed : seed_value),
                                    static_cast<std::uint64_t>(offset ? *offset : offset_value),
                                    static_cast<std::uint64_t>(index));
  }
};

template <class In>
struct ElementEncodeArgs {
  EncodeArgs<In> tile;
  ElementPlaces places, code_places;  // the latter of codes of 8 bits
  std::int64_t bytes;                 // of codes
  bool stochastic;
  RandomArgs random;
};

__device__ __forceinline__ void load_table(math::ByteTable& table, const CodebookSource& source,
                                           const DynamicSearch& dynamic) {
  if (source.given) {
    build_given(table, source);
  } else {
    copy_shared(table, dynamic.table);
    __syncthreads();
  }
}
__device__ __forceinline__ void load_table(math::NibbleTable& table, const CodebookSource& source,
                                           const DynamicSearch&) {
  load_table(table, source);
}
template <bool kNibble>
using TableOf = std::conditional_t<kNibble, math::NibbleTable, math::ByteTable>;

template <class In, class Table>
__device__ __forceinline__ std::uint8_t element_code(const ElementEncodeArgs<In>& args,
                                                     const Table& table, std::int64_t index) {
  using C = math::Compute<In>;
  const C x = math::widen(load_single(args.tile.input + args.places[index]));
  math::BlockDivision<C> division;
  if (args.tile.absmax)
    division = math::block_division(load_single(args.tile.absmax + index / args.tile.block_size),
                                    args.tile.quotient);
  if (division.empty) return table.zero;
  const C y = math::divided(x, division);
  return args.stochastic ? math::stochastic_code(y, table, args.random.template uniform<C>(index))
                         : math::nearest_code(y, table);
}

// A thread for each byte of codes, in a grid-stride loop.
template <class In, bool kNibble>
__device__ __forceinline__ void encode_all_elements(const ElementEncodeArgs<In>& args,
                                                    const DynamicSearch& dynamic) {
  __shared__ TableOf<kNibble> table;
  load_table(table, args.tile.source, dynamic);
  const std::int64_t threads = std::int64_t{gridDim.x} * kCodebookThreads;
#pragma unroll 1
  for (std::int64_t byte = std::int64_t{blockIdx.x} * kCodebookThreads + threadIdx.x;
       byte < args.bytes; byte += threads) {
    if constexpr (kNibble) {
      const std::uint8_t first = element_code(args, table, 2 * byte);
      const std::uint8_t second =
          2 * byte + 1 < args.tile.count ? element_code(args, table, 2 * byte + 1) : 0;
      store_once(args.tile.output + byte, math::pack_nibbles(first, second, args.tile.order));
    } else {
      store_once(args.tile.output + args.code_places[byte], element_code(args, table, byte));
    }
  }
}

}  // namespace planq::cuda
