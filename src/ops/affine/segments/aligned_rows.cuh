// The fast kernels beside those of rows.cuh: segments of equal length that begin and end with whole
// vectors, a fixed stride apart. Everything that other shapes need is left out of the registers;
// what the numbers of a segment may need besides (a NaN, an extreme scale) is one call to a cold
// function.
#pragma once

#include "cuda/launch.cuh"
#include "cuda/vectors.cuh"
#include "ops/affine/segments/rows.cuh"

namespace planq::affine {

using cuda::pair_extremes;
using cuda::pair_max;
using cuda::scattered;

template <class In>
struct RegularArgs {
  const In* input;
  std::uint8_t* output;
  void* scale;
  std::int32_t* zero_point;
  // From a segment to the next: elements, bytes, elements, elements.
  std::int64_t input_stride, output_stride, scale_stride, zero_point_stride;
  std::uint32_t count;
  std::uint32_t vectors;    // of a segment; quantize_unaligned_rows: elements
  std::int32_t lanes_log2;  // of a segment, for quantize_regular_subwarps
  // For Variant::Generic:
  bool clamps;                       // whether codes need Bounds::Clamp
  bool exact;                        // whether storing a scale changes nothing
  bool plain;                        // whether scales are stored in the compute type
  Compute<In> steps, inverse_steps;  // of a scale in the span of a segment
  math::AffineSpec<Compute<In>> spec;
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
__device__ __noinline__ void store_converted(const RegularArgs<In>& args, std::int64_t at,
                                             Compute<In> scale) {
  store_scale(args.scale, at, scale, args.spec.scale_dtype);
}

template <Variant kVariant, bool kAsymmetric, class In>
__device__ __forceinline__ void store_regular(
    const RegularArgs<In>& args, std::uint32_t index,
    const math::SegmentParameters<Compute<In>>& parameters) {
  const std::int64_t at = index * args.scale_stride;
  if (kVariant == Variant::Specialized || args.plain)
    cuda::store_once(static_cast<Compute<In>*>(args.scale) + at, parameters.scale);
  else
    store_converted(args, at, parameters.scale);
  if constexpr (kAsymmetric)
    cuda::store_once(args.zero_point + index * args.zero_point_stride, parameters.zero_point);
}

// Parameters and codes of a segment element by element, by all threads of its team.
template <class In, Codes kCodes, Variant kVariant, bool kAsymmetric>
__device__ __noinline__ void walk_regular(const RegularArgs<In>& args, std::uint32_t index,
                                          std::int64_t length, KeyOf<In> low, KeyOf<In> high,
                                          bool special, int rank, int team) {
  const auto spec = known_spec<kVariant, kAsymmetric>(args.spec);
  const KeyRange<In> key_range{low, high};
  const auto parameters =
      math::segment_parameters(spec, range_of(key_range, !kAsymmetric, special));
  if (rank == 0) {
    store_scale(args.scale, index * args.scale_stride, parameters.scale, spec.scale_dtype);
    if constexpr (kAsymmetric)
      cuda::store_once(args.zero_point + index * args.zero_point_stride, parameters.zero_point);
  }
  walk_codes<In, kCodes>(args.segment(index), args.codes(index), length, spec, parameters,
                         args.order, rank, team);
}

template <bool kAsymmetric, class In>
__device__ __noinline__ KeyRange<In> walk_regular_finite(const RegularArgs<In>& args,
                                                         std::uint32_t index, std::int64_t length,
                                                         int rank, int team) {
  return walk_finite(args.segment(index), length, rank, team, !kAsymmetric);
}

// --- Ranges and parameters ---------------------------------------------------------------------

template <class In>
__device__ __forceinline__ KeyRange<In> key_range_of_pair(std::uint32_t pair) {
  KeyRange<In> key_range;
  key_range.high = key_of(In{static_cast<std::uint16_t>(pair)}, false);
  key_range.low = key_of(In{static_cast<std::uint16_t>(pair >> 16 ^ 0x8000u)}, false);
  return key_range;
}

template <class In, bool kAsymmetric, int kCount>
__device__ __forceinline__ KeyRange<In> vector_key_range(const uint4 (&v)[kCount]) {
  if constexpr (sizeof(In) > 2) {
    Collector<In> collector;
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      kAsymmetric ? collector.add_ordered(v[k]) : collector.add_magnitudes(v[k]);
    return collector.key_range();
  } else if constexpr (kAsymmetric) {
    return key_range_of_pair<In>(pair_extremes<In>(v));
  } else {
    std::uint32_t high = 0;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const std::uint32_t words[4] = {v[k].x, v[k].y, v[k].z, v[k].w};
#pragma unroll
      for (int i = 0; i < 4; ++i) high = __vmaxu2(high, words[i] & 0x7FFF7FFFu);
    }
    KeyRange<In> key_range;
    key_range.high = static_cast<std::int32_t>(max(high >> 16, high & 0xFFFFu));
    return key_range;
  }
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

// math::segment_parameters, its rare parts out of line; false where they are not ordinary, and then
// what they are does not matter. Divisions by the exact scheme of cuda/codes.cuh, which holds while
// the scale, as computed and as stored, is inside the window.
template <Variant kVariant, bool kAsymmetric, class Args, class In>
__device__ __forceinline__ bool regular_parameters(const Args& args, const KeyRange<In>& key_range,
                                                   math::SegmentParameters<Compute<In>>& result) {
  using C = Compute<In>;
  const math::AffineSpec<C>& spec = args.spec;
  const auto set_scale = [&](C span) {
    C scale = quotient<true>(span, args.steps, args.inverse_steps);
    if (span == C{0}) scale = C{1};
    const bool inside = scale >= kSmallScale<C> && scale <= kLargeScale<C>;
    if (kVariant == Variant::Generic && !args.exact && span != C{0})
      scale = stored_scale_of(scale, spec.scale_dtype);
    result = {scale, inverse_of(scale), 0, false};
    return inside;
  };
  if constexpr (kAsymmetric) {
    C low = value_of<In>(key_range.low), high = value_of<In>(key_range.high);
    if (spec.include_zero) {
      low = low < C{0} ? low : C{0};
      high = high > C{0} ? high : C{0};
    }
    const bool inside = set_scale(high - low);
    const auto steps =
        static_cast<std::int32_t>(rounded(quotient<true>(low, result.scale, result.inverse)));
    result.zero_point = spec.q_low - (sizeof(C) == 4 ? steps - kRoundedBits : steps);
    if (spec.include_zero) result.zero_point = min(max(result.zero_point, spec.q_low), spec.q_high);
    // A constant segment is a case of its own. Half of the bound leaves room for a zero point.
    const C peak = -low > high ? -low : high;
    return inside && !key_range.special() && (low != high || low == C{0}) &&
           peak * result.inverse <= kLargeQuotient<C> / 2;
  } else {
    const C peak = magnitude_of<In>(key_range.high);
    const bool inside = set_scale(peak);
    if (kVariant == Variant::Generic && spec.quotient == Quotient::Ratio)
      result.inverse = ratio_of(spec.q_max, peak);
    return inside && key_range.high < kInfinityKey<In> &&
           peak * result.inverse <= kLargeQuotient<C>;
  }
}

// --- A block or a cluster ----------------------------------------------------------------------

// What is left to do where the numbers of a segment are not ordinary.
template <Codes kCodes, Variant kVariant, bool kAsymmetric, class In>
__device__ __forceinline__ void walk_team(const RegularArgs<In>& args, std::uint32_t index,
                                          std::int64_t length, KeyRange<In> key_range, int rank,
                                          int team, int cluster) {
  const bool special = key_range.special();
  if (special && args.spec.nonfinite == NonFinite::Saturate)
    key_range = team_key_range<Team::Block>(
        1, walk_regular_finite<kAsymmetric>(args, index, length, rank, team), cluster,
        !kAsymmetric);
  walk_regular<In, kCodes, kVariant, kAsymmetric>(args, index, length, key_range.low,
                                                  key_range.high, special, rank, team);
}

// Blocks that fit a multiprocessor beside each other hide each other's barriers.
template <class In, int kVectors>
inline constexpr int kRegularBlocks = kVectors == 1                                         ? 1
                                      : kVectors == 8 || (kVectors == 4 && sizeof(In) == 8) ? 2
                                                                                            : 3;

template <class In, Codes kCodes, Variant kVariant, int kVectors, bool kAsymmetric, bool kCluster>
__global__ void __launch_bounds__(kVectors == 1 ? kWideRowThreads : kRowThreads,
                                  kRegularBlocks<In, kVectors>)
    quantize_aligned_rows(const __grid_constant__ RegularArgs<In> args) {
  using C = Compute<In>;
  cuda::follow_previous();
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
  const KeyRange<In> key_range =
      team_key_range<Team::Block>(0, vector_key_range<In, kAsymmetric>(v), cluster, !kAsymmetric);
  math::SegmentParameters<C> parameters;
  if (!regular_parameters<kVariant, kAsymmetric>(args, key_range, parameters)) {
    walk_team<kCodes, kVariant, kAsymmetric>(
        args, index, static_cast<std::int64_t>(args.vectors) * kPerVector<In>, key_range, rank,
        team, cluster);
    return;
  }
  const Numbers<C> numbers(parameters, args.spec);
  constexpr int kBytes = kWordBytes<In, kCodes>;
  auto* output = reinterpret_cast<cuda::Word<kBytes>*>(args.codes(index));
  by_variant<kVariant, kCodes, kAsymmetric>(args, [&](auto divides, auto bounds) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const unsigned i = rank + k * team;
      const auto word = encode<In, kCodes, kAsymmetric, divides.value, bounds.value>(
          v[k], numbers, args.spec, args.order);
      if (i < args.vectors) cuda::store_once(output + i, word);
    }
  });
  if (rank == 0) store_regular<kVariant, kAsymmetric>(args, index, parameters);
}

// --- Rows that begin anywhere ------------------------------------------------------------------

// Rows of `args.vectors` elements, cut at the 16-byte boundaries of the input: up to kPerVector - 1
// single elements, whole vectors, and as many single elements again. Only bytes of the row are read
// or written. Codes of whole bytes only.
template <class In, Codes kCodes, Variant kVariant, int kVectors, bool kAsymmetric>
__global__ void __launch_bounds__(kRowThreads, kRegularBlocks<In, kVectors>)
    quantize_unaligned_rows(const __grid_constant__ RegularArgs<In> args) {
  using C = Compute<In>;
  cuda::follow_previous();
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
  KeyRange<In> key_range = vector_key_range<In, kAsymmetric>(v);
  C x{};
  if (edge) {
    const In element = cuda::load_single(begin + at);
    x = math::widen(element);
    key_range.add(key_of(element, !kAsymmetric));
  }
  key_range = team_key_range<Team::Block>(0, key_range, 1, !kAsymmetric);
  math::SegmentParameters<C> parameters;
  if (!regular_parameters<kVariant, kAsymmetric>(args, key_range, parameters)) {
    walk_team<kCodes, kVariant, kAsymmetric>(args, index, args.vectors, key_range, rank, team, 1);
    return;
  }
  if (rank == 0) store_regular<kVariant, kAsymmetric>(args, index, parameters);
  const Numbers<C> numbers(parameters, args.spec);
  constexpr int kBytes = kWordBytes<In, kCodes>;
  std::uint8_t* codes = args.codes(index);
  const int shift = cuda::misalignment<kBytes>(codes + head);
  by_variant<kVariant, kCodes, kAsymmetric>(args, [&](auto divides, auto bounds) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const unsigned i = rank + k * team;
      const auto word = encode<In, kCodes, kAsymmetric, divides.value, bounds.value>(
          v[k], numbers, args.spec, args.order);
      std::uint8_t* to = codes + head + i * kBytes;
      if (shift != 0) {
        const int lane = rank % cuda::kWarp;
        const int last = static_cast<int>(vectors) - 1 - static_cast<int>(i - lane);
        cuda::store_unaligned<kBytes>(to, word, shift, lane, min(last, 31), cuda::kWarp);
      } else if (i < vectors) {
        cuda::store_word<kBytes>(to, word);
      }
    }
    if (edge)
      cuda::store_once(codes + at, encode_single<kCodes, kAsymmetric, divides.value, bounds.value>(
                                       x, numbers, args.spec, args.order));
  });
}

// --- Subwarps ----------------------------------------------------------------------------------

// The key ranges of kSets vectors over sets of `lanes` lanes, as scattered() leaves them.
template <class In, bool kAsymmetric, int kSets>
__device__ __forceinline__ KeyRange<In> scattered_key_range(const uint4 (&v)[kSets], int lane,
                                                            int lanes) {
  if constexpr (kAsymmetric && sizeof(In) == 2) {
    std::uint32_t pairs[kSets];
#pragma unroll
    for (int k = 0; k < kSets; ++k) {
      const uint4 one[1] = {v[k]};
      pairs[k] = pair_extremes<In>(one);
    }
    return key_range_of_pair<In>(scattered(
        pairs, lane, lanes, [](std::uint32_t a, std::uint32_t b) { return pair_max<In>(a, b); }));
  } else {
    using Key = KeyOf<In>;
    const auto larger = [](Key a, Key b) { return max(a, b); };
    Key high[kSets], low[kSets];
#pragma unroll
    for (int k = 0; k < kSets; ++k) {
      const uint4 one[1] = {v[k]};
      const KeyRange<In> key_range = vector_key_range<In, kAsymmetric>(one);
      high[k] = key_range.high;
      low[k] = ~key_range.low;
    }
    KeyRange<In> result;
    result.high = scattered(high, lane, lanes, larger);
    if constexpr (kAsymmetric) result.low = ~scattered(low, lane, lanes, larger);
    return result;
  }
}

// Ranges, parameters and codes of a warp's segments, one after another and element by element.
template <class In, Codes kCodes, Variant kVariant, int kSets, bool kAsymmetric>
__device__ __noinline__ void walk_regular_subwarps(const RegularArgs<In>& args, std::uint32_t first,
                                                   int step, int rank) {
  constexpr bool symmetric = !kAsymmetric;
  const std::int64_t length = static_cast<std::int64_t>(args.vectors) * kPerVector<In>;
  const int lanes = 1 << args.lanes_log2;
#pragma unroll 1
  for (int k = 0; k < kSets; ++k) {
    const std::uint32_t index = first + k * step;
    const bool exists = index < args.count;
    KeyRange<In> key_range, finite;
    if (exists) {
      const In* input = args.segment(index);
#pragma unroll 1
      for (std::int64_t i = rank; i < length; i += lanes)
        key_range.add(key_of(input[i], symmetric));
      finite = walk_finite(input, length, rank, lanes, symmetric);
    }
    key_range = subwarp_key_range(key_range, lanes, symmetric);
    finite = subwarp_key_range(finite, lanes, symmetric);
    const bool special = key_range.special();
    const bool saturate = special && args.spec.nonfinite == NonFinite::Saturate;
    const KeyRange<In>& used = saturate ? finite : key_range;
    if (exists)
      walk_regular<In, kCodes, kVariant, kAsymmetric>(args, index, length, used.low, used.high,
                                                      special, rank, lanes);
  }
}

// Vectors that begin between 16-byte boundaries, and words that begin between theirs.
inline constexpr int kUnalignedSets = 4;

// Blocks that the registers of a multiprocessor have to hold, where the compiler would make room
// for more at the price of memory traffic; 0 leaves them to the compiler.
template <class In, Codes kCodes, Variant kVariant, int kSets, bool kUnaligned>
constexpr int subwarp_blocks() {
  if (kUnaligned) return sizeof(In) == 2 ? 10 : 0;
  const bool spills =
      kVariant == Variant::Specialized && kCodes == Codes::Nibble && (kSets == 2 || kSets == 4);
  return spills ? 9 : 0;
}

// Vectors place, place + 32, ... of at least two that begin anywhere; those beyond the last repeat
// it.
template <class In, int kSets>
__device__ __forceinline__ void load_unaligned(const In* input, std::int64_t place,
                                               std::int64_t last, uint4 (&v)[kSets]) {
  cuda::UnalignedVector wide[kSets];
  bool ends = false;
#pragma unroll
  for (int k = 0; k < kSets; ++k) {
    const std::int64_t at = min(place + k * cuda::kWarp, last);
    wide[k].load(input + at * kPerVector<In>, at != 0, at != last);
    ends = ends || at == 0 || at == last;
  }
  const int past = cuda::misalignment<cuda::kVectorBytes>(input);
#pragma unroll
  for (int k = 0; k < kSets; ++k) v[k] = wide[k].vector(past);
  if (!ends) return;
#pragma unroll
  for (int k = 0; k < kSets; ++k) {
    const std::int64_t at = min(place + k * cuda::kWarp, last);
    if (at == 0 || at == last) v[k] = wide[k].elements(input + at * kPerVector<In>);
  }
}

// Segments of `lanes` vectors that follow one another without a gap: vectors and words are numbered
// through, and a warp takes kSets * 32 of them.
template <class In, Codes kCodes, Variant kVariant, int kSets, bool kAsymmetric,
          bool kUnaligned = false>
__global__ void __launch_bounds__(kSubwarpThreads,
                                  subwarp_blocks<In, kCodes, kVariant, kSets, kUnaligned>())
    quantize_regular_subwarps(const __grid_constant__ RegularArgs<In> args) {
  using C = Compute<In>;
  cuda::follow_previous();
  constexpr int kBytes = kWordBytes<In, kCodes>;
  const int lane = threadIdx.x % cuda::kWarp;
  const int lanes = 1 << args.lanes_log2, rank = lane & (lanes - 1);
  const int step = cuda::kWarp >> args.lanes_log2;
  const std::uint32_t warp =
      blockIdx.x * (kSubwarpThreads / cuda::kWarp) + threadIdx.x / cuda::kWarp;
  const std::uint32_t first = warp * (kSets * step) + (lane >> args.lanes_log2);
  const bool full = (warp + 1) * (kSets * step) <= args.count;  // no set of the warp is missing
  const std::int64_t place = static_cast<std::int64_t>(warp) * (kSets * cuda::kWarp) + lane;
  const std::int64_t last = (static_cast<std::int64_t>(args.count) << args.lanes_log2) - 1;

  uint4 v[kSets];
  const auto* input = reinterpret_cast<const uint4*>(args.input);
  if constexpr (kUnaligned) {
    load_unaligned(args.input, place, last, v);
  } else if (full) {
#pragma unroll
    for (int k = 0; k < kSets; ++k) v[k] = cuda::load_once(input + place + k * cuda::kWarp);
  } else {
    // Vectors beyond the last repeat it; nothing of them is stored.
#pragma unroll
    for (int k = 0; k < kSets; ++k)
      v[k] = cuda::load_once(input + min(place + k * cuda::kWarp, last));
  }
  // From here on a lane stands for one segment of its set, so that their parameters are worked out
  // side by side.
  const KeyRange<In> key_range = scattered_key_range<In, kAsymmetric>(v, lane, lanes);
  math::SegmentParameters<C> parameters;
  const bool fast = regular_parameters<kVariant, kAsymmetric>(args, key_range, parameters);
  if (!__all_sync(cuda::kAllLanes, fast)) {
    walk_regular_subwarps<In, kCodes, kVariant, kSets, kAsymmetric>(args, first, step, rank);
    return;
  }
  const std::uint32_t own = first + (rank & (kSets - 1)) * step;
  if (rank < kSets && own < args.count) store_regular<kVariant, kAsymmetric>(args, own, parameters);
  by_variant<kVariant, kCodes, kAsymmetric>(args, [&](auto divides, auto bounds) {
    [[maybe_unused]] cuda::UnalignedStores<kBytes> stores(cuda::misalignment<kBytes>(args.output),
                                                          lane);
    [[maybe_unused]] const std::int64_t begin = place - lane;
    [[maybe_unused]] const std::int64_t end = min(last, begin + kSets * cuda::kWarp - 1);
#pragma unroll
    for (int k = 0; k < kSets; ++k) {
      const C scale = __shfl_sync(cuda::kAllLanes, parameters.scale, k, lanes);
      const C inverse = __shfl_sync(cuda::kAllLanes, parameters.inverse, k, lanes);
      std::int32_t zero_point = 0;
      if constexpr (kAsymmetric)
        zero_point = __shfl_sync(cuda::kAllLanes, parameters.zero_point, k, lanes);
      const Numbers<C> numbers(scale, inverse, zero_point, args.spec);
      const auto word = encode<In, kCodes, kAsymmetric, divides.value, bounds.value>(
          v[k], numbers, args.spec, args.order);
      const std::int64_t at = place + k * cuda::kWarp;
      std::uint8_t* to = args.output + at * kBytes;
      if constexpr (kUnaligned)
        stores.store(to, word, at <= last, at == end);
      else if (full || at <= last)
        cuda::store_word<kBytes>(to, word);
    }
    if constexpr (kUnaligned)
      if (begin <= last)
        stores.finish(args.output + begin * kBytes, args.output + end * kBytes,
                      static_cast<int>(end - begin) % cuda::kWarp);
  });
}

}  // namespace planq::affine
