// The hot bodies of rows.cuh: segments of equal length that begin and end with whole vectors, a
// fixed stride apart. Everything that other shapes need is left out of the registers; what the
// numbers of a segment may need besides (a NaN, an extreme scale) is one call to a cold function.
#pragma once

#include "cuda/launch.cuh"
#include "ops/dynamic_range_quantize/rows.cuh"

namespace planq::dynamic_range_quantize {

template <class In>
struct TightArgs {
  const In* input;
  std::uint8_t* output;
  void* scale;
  std::int32_t* zero_point;
  // From a segment to the next: elements, bytes, elements, elements.
  std::int64_t input_stride, output_stride, scale_stride, zero_point_stride;
  std::uint32_t count;
  std::uint32_t vectors;    // of a segment; quantize_ragged_rows: elements
  std::int32_t lanes_log2;  // of a segment, for quantize_tight_lanes
  bool clamps;              // whether codes need Bounds::Clamp
  bool exact;               // whether storing a scale of this recipe changes nothing
  bool plain;               // whether scales are stored in the compute type
  math::AffineRecipe<Compute<In>> recipe;
  NibbleOrder order;

  __device__ __forceinline__ const In* segment(std::uint32_t index) const {
    return input + index * input_stride;
  }
  __device__ __forceinline__ std::uint8_t* codes(std::uint32_t index) const {
    return output + index * output_stride;
  }
};

// Conversions of a scale, out of line.
template <class In>
__device__ __noinline__ void store_converted(const TightArgs<In>& args, std::int64_t at,
                                             Compute<In> scale) {
  store_scale(args.scale, at, scale, args.recipe.scale_dtype);
}

template <bool kAsymmetric, class In>
__device__ __forceinline__ void store_tight(
    const TightArgs<In>& args, std::uint32_t index,
    const math::SegmentParameters<Compute<In>>& parameters) {
  const std::int64_t at = index * args.scale_stride;
  if (args.plain)
    cuda::store_once(static_cast<Compute<In>*>(args.scale) + at, parameters.scale);
  else
    store_converted(args, at, parameters.scale);
  if constexpr (kAsymmetric)
    cuda::store_once(args.zero_point + index * args.zero_point_stride, parameters.zero_point);
}

// Parameters and codes of a segment element by element, by all threads of its team.
template <class In, Codes kCodes>
__device__ __noinline__ void walk_tight(const TightArgs<In>& args, std::uint32_t index,
                                        std::int64_t length, KeyOf<In> low, KeyOf<In> high,
                                        bool special, int rank, int team) {
  const bool symmetric = args.recipe.mode == Mode::Symmetric;
  const Extent<In> extent{low, high};
  const auto parameters =
      math::segment_parameters(args.recipe, range_of(extent, symmetric, special));
  if (rank == 0) {
    store_scale(args.scale, index * args.scale_stride, parameters.scale,
                      args.recipe.scale_dtype);
    if (!symmetric) cuda::store_once(args.zero_point + index * args.zero_point_stride, parameters.zero_point);
  }
  walk_codes<In, kCodes>(args.segment(index), args.codes(index), length, args.recipe, parameters,
                         args.order, rank, team);
}

template <class In>
__device__ __noinline__ Extent<In> walk_tight_finite(const TightArgs<In>& args, std::uint32_t index,
                                                     std::int64_t length, int rank, int team) {
  return walk_finite(args.segment(index), length, rank, team, args.recipe.mode == Mode::Symmetric);
}

// --- Ranges and parameters ---------------------------------------------------------------------

template <class In, bool kAsymmetric, int kCount>
__device__ __forceinline__ Extent<In> tight_extent(const uint4 (&v)[kCount]) {
  Extent<In> extent;
  if constexpr (!kAsymmetric && sizeof(In) == 2) {
    std::uint32_t high = 0;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const std::uint32_t words[4] = {v[k].x, v[k].y, v[k].z, v[k].w};
#pragma unroll
      for (int i = 0; i < 4; ++i) high = __vmaxu2(high, words[i] & 0x7FFF7FFFu);
    }
    extent.high = static_cast<std::int32_t>(max(high >> 16, high & 0xFFFFu));
  } else {
    Collector<In> collector;
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      kAsymmetric ? collector.add_ordered(v[k]) : collector.add_magnitudes(v[k]);
    extent = collector.extent();
  }
  return extent;
}

// The value of a magnitude's key.
template <class In>
__device__ __forceinline__ Compute<In> magnitude_of(KeyOf<In> key) {
  if constexpr (std::is_same_v<In, Bfloat16>)
    return __uint_as_float(static_cast<std::uint32_t>(key) << 16);
  else if constexpr (sizeof(In) == 2)
    return math::widen(In{static_cast<std::uint16_t>(key)});
  else
    return math::bit_cast<Compute<In>>(key);
}

template <class C>
__device__ __noinline__ C stored_scale_of(C scale, DType dtype) {
  return math::stored_scale(scale, dtype);
}
template <class C>
__device__ __noinline__ C ratio_of(C q_max, C peak) {
  return peak == C{0} ? C{1} : q_max / peak;
}

// math::symmetric_parameters, its rare parts out of line; false where is_fast() would be.
template <class In>
__device__ __forceinline__ bool tight_parameters(const TightArgs<In>& args,
                                                 const Extent<In>& extent,
                                                 math::SegmentParameters<Compute<In>>& result,
                                                 std::false_type) {
  using C = Compute<In>;
  const C peak = magnitude_of<In>(extent.high);
  C scale = math::symmetric_step(peak, args.recipe.q_max);
  if (!args.exact) scale = stored_scale_of(scale, args.recipe.scale_dtype);
  if (peak == C{0}) scale = C{1};
  C inverse = C{1} / scale;
  if (args.recipe.quotient == Quotient::Ratio) inverse = ratio_of(args.recipe.q_max, peak);
  result = {scale, inverse, 0, false};
  return extent.high < kInfinityKey<In> && scale >= kSmallScale<C> && scale <= kLargeScale<C> &&
         peak * inverse <= kLargeQuotient<C>;
}

template <class In>
__device__ __forceinline__ bool tight_parameters(const TightArgs<In>& args,
                                                 const Extent<In>& extent,
                                                 math::SegmentParameters<Compute<In>>& result,
                                                 std::true_type) {
  const auto range = range_of(extent, false, extent.special());
  result = math::asymmetric_parameters(args.recipe, range.low, range.high);
  return is_fast(args.recipe, result, range);
}

// --- A block or a cluster ----------------------------------------------------------------------

// What is left to do where the numbers of a segment are not ordinary.
template <Codes kCodes, bool kAsymmetric, class In>
__device__ __forceinline__ void walk_team(const TightArgs<In>& args, std::uint32_t index,
                                          std::int64_t length, Extent<In> extent, int rank,
                                          int team, int cluster) {
  const bool special = extent.special();
  if (special && args.recipe.nonfinite == NonFinite::Saturate)
    extent = team_extent<Team::Block>(1, walk_tight_finite(args, index, length, rank, team),
                                      cluster, !kAsymmetric);
  walk_tight<In, kCodes>(args, index, length, extent.low, extent.high, special, rank, team);
}

// Blocks that fit a multiprocessor beside each other hide each other's barriers.
template <int kVectors>
inline constexpr int kTightBlocks = kVectors == 8 ? 2 : 3;

template <class In, Codes kCodes, int kVectors, bool kAsymmetric, bool kCluster>
__global__ void __launch_bounds__(kRowThreads, kTightBlocks<kVectors>)
    quantize_tight_rows(const __grid_constant__ TightArgs<In> args) {
  using C = Compute<In>;
  const int cluster = kCluster ? cuda::cluster_size() : 1;
  if constexpr (kCluster) open_exchange<In>(cluster, !kAsymmetric);
  const unsigned team = blockDim.x * cluster;
  const unsigned rank = team_rank<Team::Block>(cluster);
  const std::uint32_t index = kCluster ? cuda::cluster_index() : blockIdx.x;

  // A thread beyond the end repeats the last vector, which changes no range.
  const auto* input = reinterpret_cast<const uint4*>(args.segment(index));
  uint4 v[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    v[k] = cuda::load_once(input + min(rank + k * team, args.vectors - 1));
  const Extent<In> extent =
      team_extent<Team::Block>(0, tight_extent<In, kAsymmetric>(v), cluster, !kAsymmetric);
  math::SegmentParameters<C> parameters;
  if (!tight_parameters(args, extent, parameters, std::bool_constant<kAsymmetric>{})) {
    walk_team<kCodes, kAsymmetric>(args, index,
                                   static_cast<std::int64_t>(args.vectors) * kPerVector<In>, extent,
                                   rank, team, cluster);
    return;
  }
  if (rank == 0) store_tight<kAsymmetric>(args, index, parameters);
  const Numbers<C> numbers(parameters.scale, parameters.inverse, parameters.zero_point,
                           args.recipe);
  constexpr int kBytes = kWordBytes<In, kCodes>;
  auto* output = reinterpret_cast<cuda::Word<kBytes>*>(args.codes(index));
  by_body<kCodes, kAsymmetric>(args.recipe.quotient, args.clamps, [&](auto divides, auto bounds) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const unsigned i = rank + k * team;
      const auto word = encode<In, kCodes, kAsymmetric, divides.value, bounds.value>(
          v[k], numbers, args.recipe, args.order);
      if (i < args.vectors) cuda::store_once(output + i, word);
    }
  });
}

// --- Rows that begin anywhere ------------------------------------------------------------------

// Rows of `args.vectors` elements, cut at the 16-byte boundaries of the input: up to kPerVector - 1
// single elements, whole vectors, and as many single elements again. Only bytes of the row are read
// or written. Codes of whole bytes only.
template <class In, Codes kCodes, int kVectors, bool kAsymmetric>
__global__ void __launch_bounds__(kRowThreads, 2)
    quantize_ragged_rows(const __grid_constant__ TightArgs<In> args) {
  using C = Compute<In>;
  constexpr unsigned kCount = kPerVector<In>;
  const unsigned team = blockDim.x, rank = threadIdx.x;
  const std::uint32_t index = blockIdx.x;
  const In* begin = args.segment(index);
  const unsigned past = cuda::misalignment<cuda::kVectorBytes>(begin) / sizeof(In);
  const unsigned head = (kCount - past) % kCount;
  const unsigned vectors = (args.vectors - head) / kCount;
  const unsigned edges = args.vectors - vectors * kCount;  // single elements, at both ends together

  const auto* input = reinterpret_cast<const uint4*>(begin + head);
  uint4 v[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    v[k] = cuda::load_once(input + min(rank + k * team, vectors - 1));
  // Thread i < edges has single element i; the ones after the head lie behind the vectors.
  const bool edge = rank < edges;
  const unsigned at = rank < head ? rank : rank + vectors * kCount;
  Extent<In> extent = tight_extent<In, kAsymmetric>(v);
  C x{};
  if (edge) {
    const In element = cuda::load_single(begin + at);
    x = math::widen(element);
    extent.add(key_of(element, !kAsymmetric));
  }
  extent = team_extent<Team::Block>(0, extent, 1, !kAsymmetric);
  math::SegmentParameters<C> parameters;
  if (!tight_parameters(args, extent, parameters, std::bool_constant<kAsymmetric>{})) {
    walk_team<kCodes, kAsymmetric>(args, index, args.vectors, extent, rank, team, 1);
    return;
  }
  if (rank == 0) store_tight<kAsymmetric>(args, index, parameters);
  const Numbers<C> numbers(parameters.scale, parameters.inverse, parameters.zero_point,
                           args.recipe);
  constexpr int kBytes = kWordBytes<In, kCodes>;
  std::uint8_t* codes = args.codes(index);
  const int shift = cuda::misalignment<kBytes>(codes + head);
  by_body<kCodes, kAsymmetric>(args.recipe.quotient, args.clamps, [&](auto divides, auto bounds) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const unsigned i = rank + k * team;
      const auto word = encode<In, kCodes, kAsymmetric, divides.value, bounds.value>(
          v[k], numbers, args.recipe, args.order);
      std::uint8_t* to = codes + head + i * kBytes;
      if (shift != 0) {
        const int lane = rank % cuda::kWarp;
        const int last = static_cast<int>(vectors) - 1 - static_cast<int>(i - lane);
        cuda::store_shifted<kBytes>(to, word, shift, lane, min(last, 31), cuda::kWarp);
      } else if (i < vectors) {
        cuda::store_word<kBytes>(to, word);
      }
    }
    if (edge)
      cuda::store_once(codes + at,
                       encode_single<kCodes, kAsymmetric, divides.value, bounds.value>(
                           x, numbers, args.recipe, args.order));
  });
}

// --- Lanes -------------------------------------------------------------------------------------

// kSets extents over sets of `lanes` lanes, as one or two words each. Lane r of a set gets the whole
// of extent r % kSets: every step halves what a lane still carries, until it carries one.
template <int kSets, class Word, class Larger>
__device__ __forceinline__ Word scattered(Word (&values)[kSets], int lane, int lanes,
                                          const Larger& larger) {
#pragma unroll
  for (int left = kSets / 2, bit = 1; left > 0; left /= 2, bit *= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int i = 0; i < left; ++i) {
      const Word given = upper ? values[2 * i] : values[2 * i + 1];
      const Word kept = upper ? values[2 * i + 1] : values[2 * i];
      values[i] = larger(kept, __shfl_xor_sync(cuda::kAllLanes, given, bit));
    }
  }
  for (int bit = kSets; bit < lanes; bit <<= 1)
    values[0] = larger(values[0], __shfl_xor_sync(cuda::kAllLanes, values[0], bit));
  return values[0];
}

template <class In, bool kAsymmetric, int kSets>
__device__ __forceinline__ Extent<In> scattered_extent(const uint4 (&v)[kSets], int lane,
                                                       int lanes) {
  using Key = KeyOf<In>;
  const auto larger = [](Key a, Key b) { return max(a, b); };
  Extent<In> result;
  if constexpr (kAsymmetric && sizeof(In) == 2) {
    std::uint32_t both[kSets];  // the highest key, and the complement of the lowest
#pragma unroll
    for (int k = 0; k < kSets; ++k) {
      const uint4 one[1] = {v[k]};
      const Extent<In> extent = tight_extent<In, kAsymmetric>(one);
      both[k] = __byte_perm(static_cast<std::uint32_t>(extent.high),
                            static_cast<std::uint32_t>(~extent.low), 0x5410);
    }
    const std::uint32_t all =
        scattered(both, lane, lanes, [](auto a, auto b) { return __vmaxs2(a, b); });
    result.high = static_cast<std::int16_t>(all);
    result.low = ~static_cast<std::int16_t>(all >> 16);
  } else {
    Key high[kSets], low[kSets];
#pragma unroll
    for (int k = 0; k < kSets; ++k) {
      const uint4 one[1] = {v[k]};
      const Extent<In> extent = tight_extent<In, kAsymmetric>(one);
      high[k] = extent.high;
      low[k] = ~extent.low;
    }
    result.high = scattered(high, lane, lanes, larger);
    if constexpr (kAsymmetric) result.low = ~scattered(low, lane, lanes, larger);
  }
  return result;
}

// Ranges, parameters and codes of a warp's segments, one after another and element by element.
template <class In, Codes kCodes, int kSets>
__device__ __noinline__ void walk_tight_lanes(const TightArgs<In>& args, std::uint32_t first,
                                              int step, int rank) {
  const bool symmetric = args.recipe.mode == Mode::Symmetric;
  const std::int64_t length = static_cast<std::int64_t>(args.vectors) * kPerVector<In>;
  const int lanes = 1 << args.lanes_log2;
#pragma unroll 1
  for (int k = 0; k < kSets; ++k) {
    const std::uint32_t index = first + k * step;
    const bool exists = index < args.count;
    Extent<In> extent, finite;
    if (exists) {
      const In* input = args.segment(index);
#pragma unroll 1
      for (std::int64_t i = rank; i < length; i += lanes) extent.add(key_of(input[i], symmetric));
      finite = walk_finite(input, length, rank, lanes, symmetric);
    }
    extent = lanes_extent(extent, lanes, symmetric);
    finite = lanes_extent(finite, lanes, symmetric);
    const bool special = extent.special();
    const bool saturate = special && args.recipe.nonfinite == NonFinite::Saturate;
    const Extent<In>& used = saturate ? finite : extent;
    if (exists)
      walk_tight<In, kCodes>(args, index, length, used.low, used.high, special, rank, lanes);
  }
}

// Segments of `lanes` vectors that follow one another without a gap: vectors and words are numbered
// through, and a warp takes kSets * 32 of them.
template <class In, Codes kCodes, int kSets, bool kAsymmetric>
__global__ void __launch_bounds__(kLaneThreads)
    quantize_tight_lanes(const __grid_constant__ TightArgs<In> args) {
  using C = Compute<In>;
  const int lane = threadIdx.x % cuda::kWarp;
  const int lanes = 1 << args.lanes_log2, rank = lane & (lanes - 1);
  const int step = cuda::kWarp >> args.lanes_log2;
  const std::uint32_t warp = blockIdx.x * (kLaneThreads / cuda::kWarp) + threadIdx.x / cuda::kWarp;
  const std::uint32_t first = warp * (kSets * step) + (lane >> args.lanes_log2);
  const bool full = (warp + 1) * (kSets * step) <= args.count;  // no set of the warp is missing
  const std::int64_t place = static_cast<std::int64_t>(warp) * (kSets * cuda::kWarp) + lane;

  uint4 v[kSets];
  const auto* input = reinterpret_cast<const uint4*>(args.input);
  if (full) {
#pragma unroll
    for (int k = 0; k < kSets; ++k) v[k] = cuda::load_once(input + place + k * cuda::kWarp);
  } else {
    // Vectors beyond the last repeat it; nothing of them is stored.
    const std::int64_t last = (static_cast<std::int64_t>(args.count) << args.lanes_log2) - 1;
#pragma unroll
    for (int k = 0; k < kSets; ++k)
      v[k] = cuda::load_once(input + min(place + k * cuda::kWarp, last));
  }
  // From here on a lane stands for one segment of its set, so that their parameters are worked out
  // side by side.
  const Extent<In> extent = scattered_extent<In, kAsymmetric>(v, lane, lanes);
  math::SegmentParameters<C> parameters;
  const bool fast = tight_parameters(args, extent, parameters, std::bool_constant<kAsymmetric>{});
  if (!__all_sync(cuda::kAllLanes, fast)) {
    walk_tight_lanes<In, kCodes, kSets>(args, first, step, rank);
    return;
  }
  const std::uint32_t own = first + (rank & (kSets - 1)) * step;
  if (rank < kSets && own < args.count) store_tight<kAsymmetric>(args, own, parameters);
  auto* codes = reinterpret_cast<cuda::Word<kWordBytes<In, kCodes>>*>(args.output) + place;
  by_body<kCodes, kAsymmetric>(args.recipe.quotient, args.clamps, [&](auto divides, auto bounds) {
#pragma unroll
    for (int k = 0; k < kSets; ++k) {
      const C scale = __shfl_sync(cuda::kAllLanes, parameters.scale, k, lanes);
      const C inverse = __shfl_sync(cuda::kAllLanes, parameters.inverse, k, lanes);
      std::int32_t zero_point = 0;
      if constexpr (kAsymmetric)
        zero_point = __shfl_sync(cuda::kAllLanes, parameters.zero_point, k, lanes);
      const Numbers<C> numbers(scale, inverse, zero_point, args.recipe);
      const auto word = encode<In, kCodes, kAsymmetric, divides.value, bounds.value>(
          v[k], numbers, args.recipe, args.order);
      if (full || first + k * step < args.count) cuda::store_once(codes + k * cuda::kWarp, word);
    }
  });
}

}  // namespace planq::dynamic_range_quantize
