// Elements to codes of a codebook. Tiles are for whole vectors of consecutive elements, whose
// blocks are measured on the way or have their absmax in memory; everything else goes element by
// element after its absmax have been measured. A block of threads stays and takes tile after tile,
// since the tables that it searches are worth keeping.
#pragma once

#include <algorithm>
#include <array>

#include "core/codebook.h"
#include "cuda/affine.cuh"
#include "cuda/codebook_layout.cuh"
#include "cuda/codebook_search.cuh"
#include "math/philox.h"

namespace planq::cuda {

inline constexpr int kTileVectors = 4;  // of a thread
inline constexpr int kWarpVectors = kTileVectors * kWarp;
inline constexpr int kEncodeTile = kTileVectors * kCodebookThreads;

// Magnitudes as integers, of stored elements where these are short.
template <class In>
using MagnitudeKey =
    std::conditional_t<sizeof(In) == 2, std::uint16_t, Word<static_cast<int>(sizeof(In))>>;
template <class In>
inline constexpr std::uint64_t kInfiniteKey = sizeof(In) == 8                  ? 0x7FF0000000000000u
                                              : sizeof(In) == 4                ? 0x7F800000u
                                              : std::is_same_v<In, math::Half> ? 0x7C00u
                                                                               : 0x7F80u;

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
  bool saturate;
  std::int64_t block_size;
};

// --- Magnitudes --------------------------------------------------------------------------------

// The larger magnitudes of two pairs of elements of 16 bits; a NaN is the largest.
template <class In>
__device__ __forceinline__ std::uint32_t larger_magnitudes(std::uint32_t a, std::uint32_t b) {
  std::uint32_t larger;
  if constexpr (std::is_same_v<In, math::Half>)
    asm("{ .reg .b32 p, q; abs.f16x2 p, %1; abs.f16x2 q, %2; max.NaN.f16x2 %0, p, q; }"
        : "=r"(larger)
        : "r"(a), "r"(b));
  else
    asm("{ .reg .b32 p, q; abs.bf16x2 p, %1; abs.bf16x2 q, %2; max.NaN.bf16x2 %0, p, q; }"
        : "=r"(larger)
        : "r"(a), "r"(b));
  return larger;
}

// The largest of a vector; of stored elements of 16 bits, one of each half of a word.
template <class In>
__device__ __forceinline__ auto largest_bits(const uint4& v) {
  if constexpr (sizeof(In) == 2) {
    return larger_magnitudes<In>(larger_magnitudes<In>(v.x, v.y), larger_magnitudes<In>(v.z, v.w));
  } else if constexpr (sizeof(In) == 4) {
    constexpr std::uint32_t kMask = 0x7FFFFFFFu;
    return max(max(v.x & kMask, v.y & kMask), max(v.z & kMask, v.w & kMask));
  } else {
    const std::uint64_t first = std::uint64_t{v.y & 0x7FFFFFFFu} << 32 | v.x;
    const std::uint64_t second = std::uint64_t{v.w & 0x7FFFFFFFu} << 32 | v.z;
    return first > second ? first : second;
  }
}
template <class In>
__device__ __forceinline__ MagnitudeKey<In> largest_key(const uint4& v) {
  const auto bits = largest_bits<In>(v);
  if constexpr (sizeof(In) == 2)
    return static_cast<std::uint16_t>(max(bits & 0xFFFFu, bits >> 16));
  else
    return bits;
}
// A vector with zeros in the place of what is no finite number: kept out of line because it is
// rare.
template <class In>
__device__ __noinline__ uint4 finite_only(uint4 v) {
  using Bits = Word<static_cast<int>(sizeof(In))>;
  Bits elements[kPerVector<In>];
  memcpy(elements, &v, sizeof v);
#pragma unroll
  for (Bits& element : elements) {
    constexpr int kBits = 8 * static_cast<int>(sizeof(In));
    if ((element & ((std::uint64_t{1} << (kBits - 1)) - 1)) >= kInfiniteKey<In>) element = 0;
  }
  memcpy(&v, elements, sizeof v);
  return v;
}
template <class In>
__device__ __forceinline__ math::Compute<In> magnitude_of(MagnitudeKey<In> key) {
  In stored;
  memcpy(&stored, &key, sizeof stored);
  return math::widen(stored);
}

// The largest keys of the vectors of a thread: two in a word where they have 16 bits.
template <class In>
struct TileKeys {
  static constexpr bool kPairs = sizeof(In) == 2;
  static constexpr int kWords = kPairs ? kTileVectors / 2 : kTileVectors;
  using Bits = std::conditional_t<sizeof(In) == 8, std::uint64_t, std::uint32_t>;
  static_assert(kTileVectors == 4 && kWarp == 1 << 5);
  Bits words[kWords];

  __device__ __forceinline__ explicit TileKeys(const uint4 (&vectors)[kTileVectors]) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (kPairs) {
        const std::uint32_t a = largest_bits<In>(vectors[2 * i]);
        const std::uint32_t b = largest_bits<In>(vectors[2 * i + 1]);
        words[i] = __vmaxu2(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632));
      } else {
        words[i] = largest_bits<In>(vectors[i]);
      }
    }
  }
  static __device__ __forceinline__ Bits larger(Bits a, Bits b) {
    if constexpr (kPairs)
      return __vmaxu2(a, b);
    else
      return a > b ? a : b;
  }
  __device__ __forceinline__ MagnitudeKey<In> operator[](int i) const {
    if constexpr (kPairs)
      return static_cast<std::uint16_t>(words[i / 2] >> 16 * (i % 2));
    else
      return words[i];
  }
  // The absmax of vector i's block.
  __device__ __forceinline__ math::Compute<In> magnitude(int i) const {
    if constexpr (std::is_same_v<In, math::Bfloat16>)
      return __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xFFFF0000u);
    else
      return magnitude_of<In>((*this)[i]);
  }
  // Whether some vector holds what is no finite number.
  __device__ __forceinline__ bool nonfinite() const {
    bool found = false;
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) found |= (*this)[i] >= kInfiniteKey<In>;
    return found;
  }
  // All vectors of a thread share the largest of them, or neighbours do.
  __device__ __forceinline__ void fold(bool all) {
    if constexpr (kPairs) {
#pragma unroll
      for (Bits& word : words) word = larger(word, __byte_perm(word, 0, 0x1032));
      if (all) words[0] = words[1] = larger(words[0], words[1]);
    } else {
      words[0] = words[1] = larger(words[0], words[1]);
      words[2] = words[3] = larger(words[2], words[3]);
      if (all) words[0] = words[1] = words[2] = words[3] = larger(words[0], words[2]);
    }
  }
  // The largest of a block of 2^shift vectors. Short blocks lie beside each other in the lanes,
  // longer ones go through all vectors of a warp, or on in the next warps.
  __device__ __forceinline__ void share(int shift, Bits* of_warps) {
    if (shift > 5) fold(shift > 6);
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      if (step >> shift != 0) break;
#pragma unroll
      for (Bits& word : words) word = larger(word, __shfl_xor_sync(kAllLanes, word, step));
    }
    if (shift <= 7) return;
    const int warp = static_cast<int>(threadIdx.x) / kWarp, warps = 1 << (shift - 7);
    const int first = warp & -warps;
    if (threadIdx.x % kWarp == 0) of_warps[warp] = words[0];
    // The warps of the block alone wait for each other.
    asm volatile("bar.sync %0, %1;" ::"r"(1 + first), "r"(warps * kWarp) : "memory");
#pragma unroll 1
    for (int i = 0; i < warps; ++i) words[0] = larger(words[0], of_warps[first + i]);
#pragma unroll
    for (Bits& word : words) word = words[0];
  }
};

// --- Codes -------------------------------------------------------------------------------------

// How a vector becomes codes.
template <class C>
struct VectorBlock {
  C absmax, inverse;
};

// Elements from here on divide exactly by correcting a product, and so do their quotients.
template <class C>
inline constexpr C kSmallDividend = sizeof(C) == 4 ? C(0x1p-100) : C(0x1p-900);

// Whether elements divide the fast way, by an absmax whose reciprocal is exact then.
template <class C>
__device__ __forceinline__ bool divides_fast(C absmax) {
  return absmax >= kSmallScale<C> && absmax <= kLargeScale<C>;
}

// The quotient as it is searched for; math::searched().
__device__ __forceinline__ float as_searched(float y, bool) { return y; }
__device__ __forceinline__ float as_searched(double y, bool mirrored) {
  return mirrored && y < 0 ? __double2float_rd(y) : __double2float_ru(y);
}

template <class In, bool kDivide, bool kBounded>
__device__ __forceinline__ float searched_quotient(math::Compute<In> x,
                                                   const VectorBlock<math::Compute<In>>& block,
                                                   bool mirrored, float bound, bool& odd) {
  using C = math::Compute<In>;
  // A zero keeps its sign, which the codes of 8 bits go by.
  const C q = signed_quotient<kDivide>(x, block.absmax, block.inverse);
  if (kDivide)
    odd |= x != C{0} && block.inverse != C{0} &&
           !(fabs(x) >= kSmallDividend<C> && fabs(q) >= kSmallDividend<C>);
  const float y = as_searched(q, mirrored);
  if (!kBounded) return y;
  odd |= q != q;
  return fminf(fmaxf(y, -bound), bound);
}

// Bytes chosen out of two words; a selector with its highest bit set repeats the sign of its byte.
__device__ __forceinline__ std::uint32_t chosen_bytes(std::uint32_t a, std::uint32_t b,
                                                      std::uint32_t selectors) {
  std::uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selectors));
  return result;
}
// The signs of a vector's elements as bytes of ones, four at a time.
template <class In>
__device__ __forceinline__ std::uint32_t sign_bytes(const uint4& v, int quad) {
  if constexpr (sizeof(In) == 2)
    return quad == 0 ? chosen_bytes(v.x, v.y, 0xFDB9) : chosen_bytes(v.z, v.w, 0xFDB9);
  else
    return __byte_perm(chosen_bytes(v.x, v.y, 0x00FB), chosen_bytes(v.z, v.w, 0x00FB), 0x5410);
}

template <class In, class Search, bool kDivide, bool kBounded>
  requires std::is_same_v<Search, NibbleSearch>
__device__ __forceinline__ Word<kCodeBytes<In, true>> fast_codes(
    std::uint32_t base, const uint4& v, const VectorBlock<math::Compute<In>>& block, bool mirrored,
    NibbleOrder order, bool& odd) {
  constexpr int kCount = kPerVector<In>;
  std::uint32_t codes[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j)
    codes[j] = Search::lookup(
        searched_quotient<In, kDivide, kBounded>(element_of<In>(v, j), block, mirrored, 1.0f, odd),
        base);
  std::uint32_t bytes[(kCount + 1) / 2];
  const std::uint32_t first = order == NibbleOrder::LowFirst ? 0x0Fu : 0xF0u;
#pragma unroll
  for (int j = 0; j < kCount; j += 2) bytes[j / 2] = (codes[j] & first) | (codes[j + 1] & ~first);
  if constexpr (kCount == 8)
    return __byte_perm(__byte_perm(bytes[0], bytes[1], 0x0040),
                       __byte_perm(bytes[2], bytes[3], 0x0040), 0x5410);
  else if constexpr (kCount == 4)
    return static_cast<std::uint16_t>(__byte_perm(bytes[0], bytes[1], 0x0040));
  else
    return static_cast<std::uint8_t>(bytes[0]);
}

template <class In, class Search, bool kDivide, bool kBounded>
  requires(!std::is_same_v<Search, NibbleSearch>)
__device__ __forceinline__ Word<kCodeBytes<In, false>> fast_codes(
    const typename Search::Base& base, const uint4& v, const VectorBlock<math::Compute<In>>& block,
    bool, NibbleOrder, bool& odd) {
  constexpr int kCount = kPerVector<In>;
  std::uint32_t codes[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    codes[j] = Search::lookup(searched_quotient<In, kDivide, kBounded>(
                                  element_of<In>(v, j), block, false, ByteBuckets::kLargest, odd),
                              base);
    if constexpr (kCount == 2)
      if (static_cast<std::int32_t>(j == 0 ? v.y : v.w) < 0) codes[j] = ~codes[j];
  }
  if constexpr (kCount == 2) {
    return static_cast<std::uint16_t>(__byte_perm(codes[0], codes[1], 0x0040));
  } else {
    std::uint32_t quads[kCount / 4];
#pragma unroll
    for (int q = 0; q < kCount / 4; ++q)
      quads[q] = __byte_perm(__byte_perm(codes[4 * q], codes[4 * q + 1], 0x0040),
                             __byte_perm(codes[4 * q + 2], codes[4 * q + 3], 0x0040), 0x5410) ^
                 sign_bytes<In>(v, q);
    if constexpr (kCount == 8)
      return static_cast<std::uint64_t>(quads[1]) << 32 | quads[0];
    else
      return quads[0];
  }
}

// The code of one element, whatever it is.
template <class C, int kCapacity>
__device__ __forceinline__ std::uint8_t any_code(C x, const math::BlockDivision<C>& division,
                                                 const math::CodebookTable<kCapacity>& table) {
  return division.empty ? table.zero : math::nearest_code(math::divided(x, division), table);
}

// The vectors of a thread from memory again, element by element: kept out of line because it is
// rare.
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
    // What was measured may be an infinity, of a block that is lost.
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

// What the vectors of a thread are divided by: measured and stored on the way, or found in memory.
// Returns whether the fast way is exact for all of them, as far as that goes.
template <class In, bool kMeasured>
__device__ __forceinline__ bool find_blocks(const EncodeArgs<In>& args, std::uint32_t first,
                                            const uint4 (&vectors)[kTileVectors],
                                            VectorBlock<math::Compute<In>> (&blocks)[kTileVectors],
                                            typename TileKeys<In>::Bits* of_warps) {
  using C = math::Compute<In>;
  bool usual = true;
  if constexpr (kMeasured) {
    TileKeys<In> keys(vectors);
    if (args.saturate && keys.nonfinite()) {
      usual = false;
      uint4 finite[kTileVectors];
#pragma unroll
      for (int i = 0; i < kTileVectors; ++i) finite[i] = finite_only<In>(vectors[i]);
      keys = TileKeys<In>(finite);
    }
    keys.share(args.block_shift, of_warps);
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) {
      const C absmax = keys.magnitude(i);
      // Zeros are zeros by any divisor.
      blocks[i].absmax = absmax == C{0} ? C{1} : absmax;
    }
    const std::uint32_t mask = (1u << args.block_shift) - 1;
    if ((first & mask) == 0 || mask >= kWarp) {
#pragma unroll
      for (int i = 0; i < kTileVectors; ++i) {
        const std::uint32_t at = first + i * kWarp;
        if ((at & mask) == 0 && at < args.vectors + (args.tail > 0))
          store_single(args.absmax + (at >> args.block_shift),
                       math::stored_absmax(keys.magnitude(i)));
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) {
      // Vectors beyond the end go by the last one's.
      const std::uint32_t at = min(first + i * kWarp, args.vectors - (args.tail == 0));
      blocks[i].absmax =
          args.absmax ? load_single(args.absmax + args.block_vectors.quotient(at)) : C{1};
    }
  }
#pragma unroll
  for (int i = 0; i < kTileVectors; ++i) {
    usual = usual && divides_fast(blocks[i].absmax);
    blocks[i].inverse = inverse_of(blocks[i].absmax);
  }
  return usual;
}

template <class In, class Search, bool kMeasured, bool kDivide>
__device__ __forceinline__ void encode_tile(const EncodeArgs<In>& args, const Search& search,
                                            bool fits, std::uint32_t first,
                                            const uint4 (&vectors)[kTileVectors],
                                            typename TileKeys<In>::Bits* of_warps) {
  constexpr bool kNibble = std::is_same_v<Search, NibbleSearch>;
  constexpr int kBytes = kCodeBytes<In, kNibble>;
  VectorBlock<math::Compute<In>> blocks[kTileVectors];
  const bool usual = find_blocks<In, kMeasured>(args, first, vectors, blocks, of_warps);
  bool odd = first + (kTileVectors - 1) * kWarp >= args.vectors;
  // Quotients of other blocks may be anything, and would be searched for outside of the tables.
  if (fits && usual) {
    Word<kBytes> words[kTileVectors];
    const auto base = search.base();
    const bool mirrored = search.table().mirrored;
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i)
      words[i] = fast_codes<In, Search, kDivide, !kMeasured>(base, vectors[i], blocks[i], mirrored,
                                                             args.order, odd);
    if (!odd) {
      std::uint8_t* output = args.output + std::int64_t{first} * kBytes;
#pragma unroll
      for (int i = 0; i < kTileVectors; ++i)
        store_word<kBytes>(output + i * kWarp * kBytes, words[i]);
      return;
    }
  }
  encode_slowly<In, kNibble, kMeasured>(
      args, search.table(), first,
      {blocks[0].absmax, blocks[1].absmax, blocks[2].absmax, blocks[3].absmax});
}

// dynamic: the table that a codebook of 8 bits has which is not given.
template <class In, class Search, bool kMeasured, bool kDivide>
__device__ __forceinline__ void encode_all_tiles(const EncodeArgs<In>& args,
                                                 const DynamicSearch& dynamic) {
  __shared__ Search search;
  __shared__ typename TileKeys<In>::Bits of_warps[2][kCodebookThreads / kWarp];
  const std::uint32_t step = gridDim.x * kEncodeTile;
  const std::uint32_t lane = threadIdx.x / kWarp * kWarpVectors + threadIdx.x % kWarp;
  uint4 vectors[kTileVectors];
  load_tile(args, blockIdx.x * kEncodeTile + lane, vectors);
  const bool fits = search.build(args.source, dynamic);
  const auto encode = [&](std::uint32_t tile, const uint4(&at_hand)[kTileVectors],
                          uint4(&next)[kTileVectors], int turn) {
    load_tile(args, tile + step + lane, next);
    encode_tile<In, Search, kMeasured, kDivide>(args, search, fits, tile + lane, at_hand,
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

// A warp for a piece of a block; pieces of a block meet in an integer maximum.
inline constexpr std::int64_t kMeasurePiece = 1 << 14;

template <class In>
struct MeasureArgs {
  const In* input;
  math::Compute<In>* absmax;
  ElementPlaces places;
  std::int64_t count, block_size, pieces, warps;
  bool saturate, vectors;
};

template <class In>
__device__ __forceinline__ MagnitudeKey<In> single_key(In x, bool saturate) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(In));
  Word<static_cast<int>(sizeof(In))> bits;
  memcpy(&bits, &x, sizeof bits);
  const auto key = static_cast<MagnitudeKey<In>>(bits & ((std::uint64_t{1} << (kBits - 1)) - 1));
  return saturate && key >= kInfiniteKey<In> ? MagnitudeKey<In>{0} : key;
}

template <class In>
__global__ void __launch_bounds__(kCodebookThreads)
    measure_blocks(const __grid_constant__ MeasureArgs<In> args) {
  using Bits = Word<sizeof(math::Compute<In>)>;
  const std::int64_t warp = (std::int64_t{blockIdx.x} * kCodebookThreads + threadIdx.x) / kWarp;
  if (warp >= args.warps) return;
  const std::int64_t block = warp / args.pieces, piece = warp - block * args.pieces;
  const std::int64_t start = block * args.block_size;
  const std::int64_t end = min(start + args.block_size, args.count);
  const std::int64_t first = start + piece * kMeasurePiece;
  const std::int64_t last = min(first + kMeasurePiece, end);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  MagnitudeKey<In> largest = 0;
  const auto take = [&](MagnitudeKey<In> key) { largest = key > largest ? key : largest; };
  std::int64_t at = first;
  if (args.vectors) {
    constexpr int kBatch = 4, kStep = kWarp * kPerVector<In>;
    for (; at + kBatch * kStep <= last; at += kBatch * kStep) {
      uint4 v[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        v[i] = load_once(args.input + at + i * kStep + lane * kPerVector<In>);
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        take(largest_key<In>(args.saturate ? finite_only<In>(v[i]) : v[i]));
    }
  }
  for (at += lane; at < last; at += kWarp)
    take(single_key<In>(load_single(args.input + args.places[at]), args.saturate));
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
    take(static_cast<MagnitudeKey<In>>(__shfl_xor_sync(kAllLanes, largest, step)));
  if (lane != 0) return;
  const math::Compute<In> magnitude = magnitude_of<In>(largest);
  if (args.pieces == 1) {
    store_single(args.absmax + block, math::stored_absmax(magnitude));
    return;
  }
  Bits bits;
  memcpy(&bits, &magnitude, sizeof bits);
  auto* found = reinterpret_cast<Bits*>(args.absmax) + block;
  if constexpr (sizeof(Bits) == 8)
    atomicMax(reinterpret_cast<unsigned long long*>(found), bits);
  else
    atomicMax(found, bits);
}

template <class C>
struct FinishArgs {
  C* absmax;
  std::int64_t count;
};

// Magnitudes that met in a maximum, as they are stored.
template <class C>
__global__ void __launch_bounds__(kCodebookThreads)
    finish_absmax(const __grid_constant__ FinishArgs<C> args) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kCodebookThreads + threadIdx.x;
  if (i < args.count) args.absmax[i] = math::stored_absmax(args.absmax[i]);
}

// Draws of stochastic rounding.
struct DrawArgs {
  const std::int64_t *seed, *offset;  // on the device, or null
  std::int64_t seed_value, offset_value;

  DrawArgs() = default;
  DrawArgs(const OperandView& seed_view, const OperandView& offset_view)
      : seed(static_cast<const std::int64_t*>(seed_view.data)),
        offset(static_cast<const std::int64_t*>(offset_view.data)),
        seed_value(seed_view.value),
        offset_value(offset_view.value) {}
  template <class C>
  __device__ __forceinline__ C draw(std::int64_t index) const {
    return math::element_draw<C>(static_cast<std::uint64_t>(seed ? *seed : seed_value),
                                 static_cast<std::uint64_t>(offset ? *offset : offset_value),
                                 static_cast<std::uint64_t>(index));
  }
};

template <class In>
struct ElementEncodeArgs {
  EncodeArgs<In> tile;
  ElementPlaces places, code_places;  // the latter of codes of 8 bits
  std::int64_t bytes;                 // of codes
  bool draws;
  DrawArgs draw;
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
  return args.draws ? math::drawn_code(y, table, args.draw.template draw<C>(index))
                    : math::nearest_code(y, table);
}

// A thread for each byte of codes, in turns.
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
