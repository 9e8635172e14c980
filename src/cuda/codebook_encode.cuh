// Elements to codes of a codebook. Tiles are for whole vectors of consecutive elements, whose
// blocks are measured on the way or have their absmax in memory; everything else goes element by
// element after its absmax have been measured. A block of threads stays and takes tile after tile,
// since the tables that it searches are worth keeping.
#pragma once

#include <algorithm>

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
  Quotient quotient;
  NibbleOrder order;
  bool saturate;
  std::int64_t block_size;
};

// --- Magnitudes --------------------------------------------------------------------------------

template <class In>
__device__ __forceinline__ MagnitudeKey<In> largest_key(const uint4& v) {
  if constexpr (sizeof(In) == 2) {
    constexpr std::uint32_t kMask = 0x7FFF7FFFu;
    const std::uint32_t pair =
        __vmaxu2(__vmaxu2(v.x & kMask, v.y & kMask), __vmaxu2(v.z & kMask, v.w & kMask));
    return static_cast<std::uint16_t>(max(pair & 0xFFFFu, pair >> 16));
  } else if constexpr (sizeof(In) == 4) {
    constexpr std::uint32_t kMask = 0x7FFFFFFFu;
    return max(max(v.x & kMask, v.y & kMask), max(v.z & kMask, v.w & kMask));
  } else {
    const std::uint64_t first = std::uint64_t{v.y & 0x7FFFFFFFu} << 32 | v.x;
    const std::uint64_t second = std::uint64_t{v.w & 0x7FFFFFFFu} << 32 | v.z;
    return first > second ? first : second;
  }
}
// The same of the finite elements.
template <class In>
__device__ __forceinline__ MagnitudeKey<In> largest_finite_key(const uint4& v) {
  Word<static_cast<int>(sizeof(In))> elements[kPerVector<In>];
  memcpy(elements, &v, sizeof v);
  MagnitudeKey<In> largest = 0;
#pragma unroll
  for (int j = 0; j < kPerVector<In>; ++j) {
    constexpr int kBits = 8 * static_cast<int>(sizeof(In));
    const auto key =
        static_cast<MagnitudeKey<In>>(elements[j] & ((std::uint64_t{1} << (kBits - 1)) - 1));
    if (key < kInfiniteKey<In> && key > largest) largest = key;
  }
  return largest;
}
template <class In>
__device__ __forceinline__ math::Compute<In> magnitude_of(MagnitudeKey<In> key) {
  In stored;
  memcpy(&stored, &key, sizeof stored);
  return math::widen(stored);
}

// The largest key of every `width` neighbouring lanes, for each vector of a thread.
template <class In>
__device__ __forceinline__ void lanes_largest(MagnitudeKey<In> (&keys)[kTileVectors], int width) {
  if constexpr (sizeof(In) == 2) {
    std::uint32_t pairs[2] = {keys[0] | std::uint32_t{keys[1]} << 16,
                              keys[2] | std::uint32_t{keys[3]} << 16};
    for (int step = width / 2; step > 0; step /= 2) {
#pragma unroll
      for (std::uint32_t& pair : pairs)
        pair = __vmaxu2(pair, __shfl_xor_sync(kAllLanes, pair, step));
    }
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i)
      keys[i] = static_cast<std::uint16_t>(pairs[i / 2] >> 16 * (i % 2));
  } else {
    for (int step = width / 2; step > 0; step /= 2) {
#pragma unroll
      for (auto& key : keys) {
        const auto other = __shfl_xor_sync(kAllLanes, key, step);
        key = other > key ? other : key;
      }
    }
  }
}

// The largest key of the block of each vector of a thread. Blocks of up to kWarp vectors lie beside
// each other in the lanes, longer ones go through all vectors of a warp, or on in the next warps.
template <class In>
__device__ __forceinline__ void block_largest(MagnitudeKey<In> (&keys)[kTileVectors], int vectors,
                                              MagnitudeKey<In>* of_warps) {
  const auto larger = [](auto a, auto b) { return a > b ? a : b; };
  static_assert(kTileVectors == 4);
  if (vectors > kWarp) {
    keys[0] = keys[1] = larger(keys[0], keys[1]);
    keys[2] = keys[3] = larger(keys[2], keys[3]);
    if (vectors > 2 * kWarp) {
      keys[0] = keys[2] = larger(keys[0], keys[2]);
      keys[1] = keys[3] = keys[0];
    }
  }
  lanes_largest<In>(keys, min(vectors, kWarp));
  if (vectors <= kWarpVectors) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, warps = vectors / kWarpVectors;
  if (threadIdx.x % kWarp == 0) of_warps[warp] = keys[0];
  __syncthreads();
  for (int i = 0; i < warps; ++i) keys[0] = larger(keys[0], of_warps[warp / warps * warps + i]);
  keys[1] = keys[2] = keys[3] = keys[0];
}

// --- Codes -------------------------------------------------------------------------------------

// How a vector becomes codes.
template <class C>
struct VectorBlock {
  C absmax, inverse;
  bool usual;  // the fast way is exact, as far as the block goes
};

// Elements from here on divide exactly by correcting a product, and so do their quotients.
template <class C>
inline constexpr C kSmallDividend = sizeof(C) == 4 ? C(0x1p-100) : C(0x1p-900);

template <class C>
__device__ __forceinline__ VectorBlock<C> block_of(C absmax, Quotient quotient) {
  if (absmax == C{0} || math::is_nan(absmax)) return {C{1}, C{0}, true};
  const bool divides = quotient == Quotient::Divide;
  constexpr C kSmallest = std::numeric_limits<C>::min();
  const C low = divides ? kSmallScale<C> : kSmallest;
  const C high = divides ? kLargeScale<C> : std::numeric_limits<C>::max();
  return {absmax, C{1} / absmax, absmax >= low && absmax <= high};
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
  const C q = quotient<kDivide>(x, block.absmax, block.inverse);
  if (kDivide)
    odd |= x != C{0} && block.inverse != C{0} &&
           !(fabs(x) >= kSmallDividend<C> && fabs(q) >= kSmallDividend<C>);
  const float y = as_searched(q, mirrored);
  if (!kBounded) return y;
  odd |= q != q;
  return fminf(fmaxf(y, -bound), bound);
}

// The signs of a vector's elements as bytes of ones, four at a time.
template <class In>
__device__ __forceinline__ std::uint32_t sign_bytes(const uint4& v, int quad) {
  if constexpr (sizeof(In) == 2)
    return quad == 0 ? __byte_perm(v.x, v.y, 0xFDB9) : __byte_perm(v.z, v.w, 0xFDB9);
  else
    return __byte_perm(__byte_perm(v.x, v.y, 0x00FB), __byte_perm(v.z, v.w, 0x00FB), 0x5410);
}

template <class In, bool kDivide, bool kBounded>
__device__ __forceinline__ Word<kCodeBytes<In, true>> fast_codes(
    std::uint32_t base, const uint4& v, const VectorBlock<math::Compute<In>>& block, bool mirrored,
    NibbleOrder order, bool& odd) {
  constexpr int kCount = kPerVector<In>;
  std::uint32_t codes[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j)
    codes[j] = NibbleSearch::lookup(
        searched_quotient<In, kDivide, kBounded>(element_of<In>(v, j), block, mirrored, 1.0f, odd),
        base);
  std::uint32_t bytes[(kCount + 1) / 2];
  const bool low_first = order == NibbleOrder::LowFirst;
#pragma unroll
  for (int j = 0; j < kCount; j += 2)
    bytes[j / 2] =
        low_first ? (codes[j] & 15u) | codes[j + 1] << 4 : (codes[j + 1] & 15u) | codes[j] << 4;
  if constexpr (kCount == 8)
    return __byte_perm(__byte_perm(bytes[0], bytes[1], 0x0040),
                       __byte_perm(bytes[2], bytes[3], 0x0040), 0x5410);
  else if constexpr (kCount == 4)
    return static_cast<std::uint16_t>(__byte_perm(bytes[0], bytes[1], 0x0040));
  else
    return static_cast<std::uint8_t>(bytes[0]);
}

template <class In, bool kDivide, bool kBounded>
__device__ __forceinline__ Word<kCodeBytes<In, false>> fast_codes(
    const ByteSearch::Base& base, const uint4& v, const VectorBlock<math::Compute<In>>& block, bool,
    NibbleOrder, bool& odd) {
  constexpr int kCount = kPerVector<In>;
  std::uint32_t codes[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    codes[j] =
        ByteSearch::lookup(searched_quotient<In, kDivide, kBounded>(
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

// Elements of a vector from memory again: kept out of line because it is rare.
template <class In, bool kNibble, class Table>
__device__ __noinline__ void encode_slowly(const In* input, std::uint8_t* output,
                                           const Table& table,
                                           math::BlockDivision<math::Compute<In>> division,
                                           int count, NibbleOrder order) {
  constexpr int kStep = kNibble ? 2 : 1;
#pragma unroll 1
  for (int j = 0; j < count; j += kStep) {
    std::uint8_t codes[2] = {0, 0};
    for (int k = 0; k < kStep && j + k < count; ++k)
      codes[k] = any_code(math::widen(load_single(input + j + k)), division, table);
    store_once(output + j / kStep,
               kNibble ? math::pack_nibbles(codes[0], codes[1], order) : codes[0]);
  }
}

// --- Tiles -------------------------------------------------------------------------------------

template <bool kNibble>
using SearchOf = std::conditional_t<kNibble, NibbleSearch, ByteSearch>;

__device__ __forceinline__ bool build_search(NibbleSearch& search, const CodebookSource& source,
                                             const DynamicSearch&) {
  return search.build(source);
}
__device__ __forceinline__ bool build_search(ByteSearch& search, const CodebookSource& source,
                                             const DynamicSearch& dynamic) {
  return search.build(source, dynamic);
}
__device__ __forceinline__ std::uint32_t base_of(const NibbleSearch& search) {
  return search.lane_base();
}
__device__ __forceinline__ ByteSearch::Base base_of(const ByteSearch& search) {
  return search.base();
}

template <class In>
__device__ __forceinline__ uint4 load_tile_vector(const EncodeArgs<In>& args, std::uint32_t at) {
  const In* from = args.input + std::int64_t{at} * kPerVector<In>;
  if (at < args.vectors) return load_once(from);
  uint4 v = make_uint4(0, 0, 0, 0);
  if (at > args.vectors || args.tail == 0) return v;
  In elements[kPerVector<In>];
#pragma unroll
  for (unsigned j = 0; j < kPerVector<In>; ++j)
    elements[j] = j < args.tail ? load_single(from + j) : In{};
  memcpy(&v, elements, sizeof v);
  return v;
}

// The absmax of each vector's block, measured and stored on the way or found in memory. `odd`: a
// vector is not for the fast way.
template <class In, bool kMeasured>
__device__ __forceinline__ void find_absmax(const EncodeArgs<In>& args, std::uint32_t first,
                                            uint4 (&vectors)[kTileVectors],
                                            math::Compute<In> (&absmax)[kTileVectors],
                                            bool (&odd)[kTileVectors], MagnitudeKey<In>* of_warps) {
  using C = math::Compute<In>;
  [[maybe_unused]] MagnitudeKey<In> keys[kTileVectors];
  if constexpr (kMeasured) {
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) {
      keys[i] = largest_key<In>(vectors[i]);
      odd[i] = args.saturate && keys[i] >= kInfiniteKey<In>;
      if (odd[i]) keys[i] = largest_finite_key<In>(vectors[i]);
    }
    block_largest<In>(keys, static_cast<int>(args.block_vectors.divisor), of_warps);
  }
#pragma unroll
  for (int i = 0; i < kTileVectors; ++i) {
    const std::uint32_t at = first + i * kWarp;
    if constexpr (kMeasured) {
      absmax[i] = math::stored_absmax(magnitude_of<In>(keys[i]));
      const bool exists = at < args.vectors || (at == args.vectors && args.tail > 0);
      const std::uint32_t block = args.block_vectors.quotient(at);
      if (exists && at == block * args.block_vectors.divisor)
        store_single(args.absmax + block, absmax[i]);
    } else {
      absmax[i] = C{1};
      if (args.absmax)
        absmax[i] = load_single(args.absmax + args.block_vectors.quotient(min(at, args.vectors)));
      odd[i] = absmax[i] < C{0} || absmax[i] > std::numeric_limits<C>::max();
    }
    // Elements of a block that is lost may be anything.
    if (math::is_nan(absmax[i])) vectors[i] = make_uint4(0, 0, 0, 0);
  }
}

template <class In, bool kNibble, bool kMeasured>
__device__ __forceinline__ void encode_tile(const EncodeArgs<In>& args,
                                            const SearchOf<kNibble>& search, bool fits,
                                            std::uint32_t first, uint4 (&vectors)[kTileVectors],
                                            MagnitudeKey<In>* of_warps) {
  using C = math::Compute<In>;
  constexpr int kBytes = kCodeBytes<In, kNibble>;
  C absmax[kTileVectors];
  bool odd[kTileVectors];
  find_absmax<In, kMeasured>(args, first, vectors, absmax, odd, of_warps);
  Word<kBytes> words[kTileVectors];
  bool any = !fits;
  const auto base = base_of(search);
  const bool mirrored = search.table.mirrored;
  const auto encode = [&](auto divides) {
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) {
      const VectorBlock<C> block = block_of(absmax[i], args.quotient);
      odd[i] |= !block.usual;
      words[i] = fast_codes<In, divides, !kMeasured>(base, vectors[i], block, mirrored, args.order,
                                                     odd[i]);
    }
  };
  if (fits) {
    if (args.quotient == Quotient::Divide)
      encode(std::true_type{});
    else
      encode(std::false_type{});
  }
  any |= first + (kTileVectors - 1) * kWarp >= args.vectors;
#pragma unroll
  for (int i = 0; i < kTileVectors; ++i) any |= odd[i];
  std::uint8_t* output = args.output + std::int64_t{first} * kBytes;
  if (!any) {
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i)
      store_word<kBytes>(output + i * kWarp * kBytes, words[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kTileVectors; ++i) {
    const std::uint32_t at = first + i * kWarp;
    const int count = at < args.vectors    ? kPerVector<In>
                      : at == args.vectors ? static_cast<int>(args.tail)
                                           : 0;
    if (count == 0) continue;
    if (fits && !odd[i] && count == kPerVector<In>) {
      store_word<kBytes>(output + i * kWarp * kBytes, words[i]);
      continue;
    }
    encode_slowly<In, kNibble>(args.input + std::int64_t{at} * kPerVector<In>,
                               output + i * kWarp * kBytes, search.table,
                               math::block_division(absmax[i], args.quotient), count, args.order);
  }
}

// dynamic: the table that a codebook of 8 bits has which is not given.
template <class In, bool kNibble, bool kMeasured>
__device__ __forceinline__ void encode_all_tiles(const EncodeArgs<In>& args,
                                                 const DynamicSearch& dynamic) {
  __shared__ SearchOf<kNibble> search;
  __shared__ MagnitudeKey<In> of_warps[2][kCodebookThreads / kWarp];
  const auto first_of = [&](std::uint32_t tile) {
    return tile * kEncodeTile + threadIdx.x / kWarp * kWarpVectors + threadIdx.x % kWarp;
  };
  const auto load = [&](uint4(&to)[kTileVectors], std::uint32_t tile) {
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i)
      to[i] = load_tile_vector<In>(args, first_of(tile) + i * kWarp);
  };
  const std::uint32_t tiles = args.vectors / kEncodeTile + 1;
  uint4 vectors[kTileVectors];
  load(vectors, blockIdx.x);
  const bool fits = build_search(search, args.source, dynamic);
  int turn = 0;
#pragma unroll 1
  for (std::uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x, turn ^= 1) {
    uint4 next[kTileVectors];
    load(next, tile + gridDim.x);
    encode_tile<In, kNibble, kMeasured>(args, search, fits, first_of(tile), vectors,
                                        of_warps[turn]);
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) vectors[i] = next[i];
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
        take(args.saturate ? largest_finite_key<In>(v[i]) : largest_key<In>(v[i]));
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

// The table alone, in shared memory.
__device__ __forceinline__ void load_table(math::NibbleTable& table, const CodebookSource& source,
                                           const DynamicSearch&) {
  if (source.given) {
    build_given(table, source);
  } else {
    if (threadIdx.x == 0) table = source.nibbles;
    __syncthreads();
  }
}
__device__ __forceinline__ void load_table(math::ByteTable& table, const CodebookSource& source,
                                           const DynamicSearch& dynamic) {
  if (source.given) {
    build_given(table, source);
  } else {
    copy_words(table, dynamic.table);
    __syncthreads();
  }
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
