// The largest magnitudes of blocks: of blocks whose vectors a tile holds in registers, and of
// blocks in memory. A vector is 16 bytes of consecutive elements.
#pragma once

#include "cuda/codes.cuh"
#include "ops/codebook/arithmetic.h"
#include "ops/codebook/layout.cuh"
#include "ops/codebook/search.cuh"

namespace planq::cuda {

// --- Elements and vectors ----------------------------------------------------------------------

// Magnitudes as integers: of the stored elements if these have 16 bits, else of compute type.
template <class In>
using MagnitudeKey =
    std::conditional_t<sizeof(In) == 2, std::uint16_t, Word<static_cast<int>(sizeof(In))>>;
template <class In>
inline constexpr std::uint64_t kInfiniteKey = sizeof(In) == 8                  ? 0x7FF0000000000000u
                                              : sizeof(In) == 4                ? 0x7F800000u
                                              : std::is_same_v<In, math::Half> ? 0x7C00u
                                                                               : 0x7F80u;

template <class In>
__device__ __forceinline__ math::Compute<In> magnitude_of(MagnitudeKey<In> key) {
  In stored;
  memcpy(&stored, &key, sizeof stored);
  return math::widen(stored);
}
template <class In>
__device__ __forceinline__ MagnitudeKey<In> single_key(In x, bool saturate) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(In));
  Word<static_cast<int>(sizeof(In))> bits;
  memcpy(&bits, &x, sizeof bits);
  const auto key = static_cast<MagnitudeKey<In>>(bits & ((std::uint64_t{1} << (kBits - 1)) - 1));
  return saturate && key >= kInfiniteKey<In> ? MagnitudeKey<In>{0} : key;
}

// The larger magnitudes of four pairs of 16-bit elements, one result for each half of the words. A
// NaN counts as the largest.
template <class In>
__device__ __forceinline__ std::uint32_t largest_magnitudes(const uint4& v) {
  std::uint32_t largest;
  if constexpr (std::is_same_v<In, math::Half>)
    asm("{ .reg .b32 a, b, c, d; abs.f16x2 a, %1; abs.f16x2 b, %2; abs.f16x2 c, %3;\n"
        "abs.f16x2 d, %4; max.NaN.f16x2 a, a, b; max.NaN.f16x2 c, c, d; max.NaN.f16x2 %0, a, c; }"
        : "=r"(largest)
        : "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
  else
    asm("{ .reg .b32 a, b, c, d; abs.bf16x2 a, %1; abs.bf16x2 b, %2; abs.bf16x2 c, %3;\n"
        "abs.bf16x2 d, %4; max.NaN.bf16x2 a, a, b; max.NaN.bf16x2 c, c, d;\n"
        "max.NaN.bf16x2 %0, a, c; }"
        : "=r"(largest)
        : "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
  return largest;
}
__device__ __forceinline__ float larger_magnitude(float a, float b) {
  float larger;
  asm("{ .reg .f32 p, q; abs.f32 p, %1; abs.f32 q, %2; max.NaN.f32 %0, p, q; }"
      : "=f"(larger)
      : "f"(a), "f"(b));
  return larger;
}

// The largest magnitude of a vector; for 16-bit elements, one for each half of the words.
template <class In>
__device__ __forceinline__ auto largest_bits(const uint4& v) {
  if constexpr (sizeof(In) == 2) {
    return largest_magnitudes<In>(v);
  } else if constexpr (sizeof(In) == 4) {
    return __float_as_uint(
        larger_magnitude(larger_magnitude(__uint_as_float(v.x), __uint_as_float(v.y)),
                         larger_magnitude(__uint_as_float(v.z), __uint_as_float(v.w))));
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
// The vector with 0 instead of NaN and infinities. Not inlined because it is rare.
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

// --- Tiles -------------------------------------------------------------------------------------

inline constexpr int kTileVectors = 4;  // of a thread, a warp's width apart
inline constexpr int kWarpVectors = kTileVectors * kWarp;

// The largest key of each vector of a thread; keys of 16 bits share a word in pairs.
template <class In>
struct TileKeys {
  static constexpr bool kPairs = sizeof(In) == 2;
  static constexpr int kWords = kPairs ? kTileVectors / 2 : kTileVectors;
  using Bits = std::conditional_t<sizeof(In) == 8, std::uint64_t, std::uint32_t>;
  static_assert(kTileVectors == 4 && kWarp == 1 << 5);
  // The fewest vectors of a block, as the exponent of a power of two.
  static constexpr int kLeastShift = 2;
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
  // Whether some vector holds a NaN or an infinity.
  __device__ __forceinline__ bool nonfinite() const {
    bool found = false;
#pragma unroll
    for (Bits word : words) {
      if constexpr (kPairs)
        found |= (word & 0xFFFFu) >= kInfiniteKey<In> || word >> 16 >= kInfiniteKey<In>;
      else
        found |= word >= kInfiniteKey<In>;
    }
    return found;
  }

  // After share(), each lane of four neighbours holds the key of one of the tile's four vectors.
  // Returns the number of that vector.
  static __device__ __forceinline__ std::uint32_t vector_of_lane() {
    const std::uint32_t lane = threadIdx.x % kTileVectors;
    return kPairs ? lane % 2 * 2 + lane / 2 : lane;
  }
  // Returns `value` of the lane, among these four, that holds the key of vector i.
  template <class T>
  static __device__ __forceinline__ T of_vector(T value, int i) {
    return __shfl_sync(kAllLanes, value, kPairs ? i % 2 * 2 + i / 2 : i, kTileVectors);
  }

  // The largest key of the block of 2^shift vectors to which this lane's vector belongs. First,
  // four lanes distribute their four vectors among themselves (parted()). Blocks of up to 32
  // vectors are then reduced among neighbouring lanes, longer ones over the vectors of the warp as
  // well, and over several warps.
  __device__ __forceinline__ MagnitudeKey<In> share(int shift, Bits* of_warps) const {
    Bits found = parted();
#pragma unroll
    for (int step = kTileVectors; step < kWarp; step *= 2) {
      if (step >> shift != 0) break;
      found = larger(found, __shfl_xor_sync(kAllLanes, found, step));
    }
    if (shift > 5) found = larger(found, neighbor(found));
    if (shift > 6) found = larger(found, __shfl_xor_sync(kAllLanes, found, kPairs ? 1 : 2));
    if (shift > 7) found = of_all_warps(found, 1 << (shift - 7), of_warps);
    if constexpr (kPairs)
      return static_cast<std::uint16_t>(threadIdx.x & 2 ? found >> 16 : found);
    else
      return found;
  }

 private:
  static __device__ __forceinline__ Bits larger(Bits a, Bits b) {
    if constexpr (kPairs)
      return __vmaxu2(a, b);
    else
      return a > b ? a : b;
  }
  // Exchanges with the lane whose number differs in `bit`. Lanes that have the bit set get the
  // larger of both lanes' `with`, the others the larger of both lanes' `without`.
  static __device__ __forceinline__ Bits exchanged(Bits without, Bits with, unsigned bit) {
    const bool has = threadIdx.x & bit;
    return larger(has ? with : without,
                  __shfl_xor_sync(kAllLanes, has ? without : with, static_cast<int>(bit)));
  }
  // The largest key of this lane's vector among four lanes.
  __device__ __forceinline__ Bits parted() const {
    if constexpr (kPairs) {
      const Bits found = exchanged(words[0], words[1], 1);
      return larger(found, __shfl_xor_sync(kAllLanes, found, 2));
    } else {
      return exchanged(exchanged(words[0], words[1], 1), exchanged(words[2], words[3], 1), 2);
    }
  }
  // The key of the neighbouring vector.
  static __device__ __forceinline__ Bits neighbor(Bits found) {
    if constexpr (kPairs)
      return __byte_perm(found, 0, 0x1032);
    else
      return __shfl_xor_sync(kAllLanes, found, 1);
  }
  static __device__ __forceinline__ Bits of_all_warps(Bits found, int warps, Bits* of_warps) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp, first = warp & -warps;
    if (threadIdx.x % kWarp == 0) of_warps[warp] = found;
    // A barrier of the warps that share this block only.
    asm volatile("bar.sync %0, %1;" ::"r"(1 + first), "r"(warps * kWarp) : "memory");
#pragma unroll 1
    for (int i = 0; i < warps; ++i) found = larger(found, of_warps[first + i]);
    return found;
  }
};

// --- Blocks in memory --------------------------------------------------------------------------

// Some lanes of a warp measure a block. A long block is cut into pieces of a warp each, and an
// atomic integer maximum joins their results.
inline constexpr std::int64_t kMeasurePiece = 1 << 14;

template <class In>
struct MeasureArgs {
  const In* input;
  math::Compute<In>* absmax;
  ElementPlaces places;
  std::int64_t count, block_size, pieces, total;  // pieces of a block, and of all blocks
  int lanes;                                      // of a piece, a power of two
  bool saturate, vectors;
};

// The largest key of those elements of a piece that this lane reads.
template <class In>
__device__ __forceinline__ MagnitudeKey<In> measured_piece(const MeasureArgs<In>& args,
                                                           const BlockSpan& piece, int lane) {
  constexpr int kPer = kPerVector<In>, kBatch = 4;
  MagnitudeKey<In> largest = 0;
  const auto take = [&](MagnitudeKey<In> key) { largest = key > largest ? key : largest; };
  std::int64_t end = piece.first;  // of whole vectors
  if (args.vectors) {
    end += (piece.last - piece.first) / kPer * kPer;
    const std::int64_t step = args.lanes * kPer;
    for (std::int64_t at = piece.first + lane * kPer; at < end; at += kBatch * step) {
      uint4 v[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        v[i] = at + i * step < end ? load_once(args.input + at + i * step) : make_uint4(0, 0, 0, 0);
#pragma unroll
      for (const uint4& vector : v)
        take(largest_key<In>(args.saturate ? finite_only<In>(vector) : vector));
    }
  }
  for (std::int64_t at = end + lane; at < piece.last; at += args.lanes)
    take(single_key<In>(load_single(args.input + args.places[at]), args.saturate));
  return largest;
}

template <class In>
__global__ void __launch_bounds__(kCodebookThreads)
    measure_blocks(const __grid_constant__ MeasureArgs<In> args) {
  using Bits = Word<sizeof(math::Compute<In>)>;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kCodebookThreads + threadIdx.x;
  const std::int64_t index = thread / args.lanes;
  const int lane = static_cast<int>(thread) & (args.lanes - 1);
  const std::int64_t block = args.pieces == 1 ? index : index / args.pieces;
  BlockSpan piece = block_span(block, args.block_size, args.count);
  piece.first += (index - block * args.pieces) * kMeasurePiece;
  piece.last = min(piece.last, piece.first + kMeasurePiece);
  MagnitudeKey<In> largest = 0;
  if (index < args.total) largest = measured_piece(args, piece, lane);
#pragma unroll 1
  for (int step = args.lanes / 2; step > 0; step /= 2) {
    const auto other = static_cast<MagnitudeKey<In>>(__shfl_xor_sync(kAllLanes, largest, step));
    largest = other > largest ? other : largest;
  }
  if (lane != 0 || index >= args.total) return;
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

// Turns the joined magnitudes into the absmax that are stored.
template <class C>
__global__ void __launch_bounds__(kCodebookThreads)
    finish_absmax(const __grid_constant__ FinishArgs<C> args) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kCodebookThreads + threadIdx.x;
  if (i < args.count) args.absmax[i] = math::stored_absmax(args.absmax[i]);
}

}  // namespace planq::cuda
