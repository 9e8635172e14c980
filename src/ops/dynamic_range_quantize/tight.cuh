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
  bool clamps;              // whether a quotient can leave [q_min, q_max]
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
  math::store_scale(args.scale, at, scale, args.recipe.scale_dtype);
}

template <bool kAsymmetric, class In>
__device__ __forceinline__ void store_tight(
    const TightArgs<In>& args, std::uint32_t index,
    const math::SegmentParameters<Compute<In>>& parameters) {
  const std::int64_t at = index * args.scale_stride;
  if (args.plain)
    static_cast<Compute<In>*>(args.scale)[at] = parameters.scale;
  else
    store_converted(args, at, parameters.scale);
  if constexpr (kAsymmetric)
    args.zero_point[index * args.zero_point_stride] = parameters.zero_point;
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
    math::store_scale(args.scale, index * args.scale_stride, parameters.scale,
                      args.recipe.scale_dtype);
    if (!symmetric) args.zero_point[index * args.zero_point_stride] = parameters.zero_point;
  }
  walk_codes<In, kCodes>(args.segment(index), args.codes(index), length, args.recipe, parameters,
                         args.order, rank, team);
}

template <class In>
__device__ __noinline__ Extent<In> walk_tight_finite(const TightArgs<In>& args, std::uint32_t index,
                                                     std::int64_t length, int rank, int team) {
  return walk_finite(args.segment(index), length, rank, team, args.recipe.mode == Mode::Symmetric);
}

// --- Codes -------------------------------------------------------------------------------------

// A segment's numbers as the loop over its elements wants them.
template <class C>
struct Numbers {
  C scale, inverse;
  C low, high;  // bounds of the quotient, where it is clamped
  std::int32_t zero_point;

  __device__ __forceinline__ Numbers(C scale, C inverse, std::int32_t zero_point,
                                     const math::AffineRecipe<C>& recipe)
      : scale(scale), inverse(inverse), zero_point(zero_point) {
    const C zero = static_cast<C>(zero_point);
    low = recipe.q_min - zero;
    high = recipe.q_max - zero;
  }
};

template <bool kAsymmetric, bool kClamp>
__device__ __forceinline__ std::uint32_t tight_integer(float quotient, const Numbers<float>& n,
                                                       const math::AffineRecipe<float>&) {
  if constexpr (kClamp) quotient = fminf(fmaxf(quotient, n.low), n.high);
  const std::uint32_t bits = __float_as_uint(__fadd_rn(quotient, 0x1.8p+23f));
  return kAsymmetric ? bits + static_cast<std::uint32_t>(n.zero_point) : bits;
}
template <bool kAsymmetric, bool kClamp>
__device__ __forceinline__ std::uint32_t tight_integer(double quotient, const Numbers<double>& n,
                                                       const math::AffineRecipe<double>& recipe) {
  std::int32_t code = __double2loint(__dadd_rn(quotient, 0x1.8p+52));
  if constexpr (kAsymmetric) code += n.zero_point;
  if constexpr (kClamp) code = min(max(code, recipe.q_low), recipe.q_high);
  return static_cast<std::uint32_t>(code);
}

template <bool kDivide, bool kClamp, class C>
__device__ __forceinline__ float tight_float8(C quotient, C x,
                                              const math::AffineRecipe<C>& recipe) {
  float value = as_float(quotient);
  if constexpr (kClamp)
    value = fminf(fmaxf(value, static_cast<float>(recipe.q_min)), static_cast<float>(recipe.q_max));
  if constexpr (!kDivide) return value;
  // The corrections of the quotient lose the sign of a zero.
  const std::uint32_t sign =
      (sizeof(C) == 4 ? __float_as_uint(static_cast<float>(x))
                      : static_cast<std::uint32_t>(__double2hiint(static_cast<double>(x)))) &
      0x80000000u;
  return __uint_as_float((__float_as_uint(value) & 0x7FFFFFFFu) | sign);
}

template <class In, Codes kCodes, bool kAsymmetric, bool kDivide, bool kClamp>
__device__ __forceinline__ cuda::Word<kWordBytes<In, kCodes>> encode_tight(
    const uint4& v, const Numbers<Compute<In>>& numbers,
    const math::AffineRecipe<Compute<In>>& recipe, NibbleOrder order) {
  using C = Compute<In>;
  constexpr int kCount = kPerVector<In>;
  std::uint32_t codes[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const C x = element_of<In>(v, i);
    const C q = quotient<kDivide>(x, numbers.scale, numbers.inverse);
    if constexpr (kCodes == Codes::Float8)
      codes[i] = __float_as_uint(tight_float8<kDivide, kClamp>(q, x, recipe));
    else
      codes[i] = tight_integer<kAsymmetric, kClamp>(q, numbers, recipe);
  }
  return finish<kCodes>(codes, recipe.output_dtype, order);
}

// Calls use(divides, clamps) with compile-time answers: one decision for a whole run of vectors.
template <class In, class Use>
__device__ __forceinline__ void by_body(const TightArgs<In>& args, const Use& use) {
  const bool divides = args.recipe.quotient == Quotient::Divide;
  if (divides && !args.clamps)
    use(std::true_type{}, std::false_type{});
  else if (divides)
    use(std::true_type{}, std::true_type{});
  else
    use(std::false_type{}, std::true_type{});
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
  if constexpr (kCluster) cuda::cluster_arrive_unordered();
  const int cluster = kCluster ? cuda::cluster_size() : 1;
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
  by_body(args, [&](auto divides, auto clamps) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const unsigned i = rank + k * team;
      const auto word = encode_tight<In, kCodes, kAsymmetric, divides.value, clamps.value>(
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
    const In element = begin[at];
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
  by_body(args, [&](auto divides, auto clamps) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const unsigned i = rank + k * team;
      const auto word = encode_tight<In, kCodes, kAsymmetric, divides.value, clamps.value>(
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
  });
  if (edge) codes[at] = math::code_of(x, args.recipe, parameters);
}

// --- Lanes -------------------------------------------------------------------------------------

// Maxima of kSets values over sets of `lanes` lanes. Lane r of a set gets the maximum of value
// r % kSets: every step halves what a lane still carries, until it carries one value.
template <int kSets, class Key>
__device__ __forceinline__ Key scattered_max(Key (&values)[kSets], int lane, int lanes) {
  if constexpr (kSets == 4) {
    const bool odd = lane & 1, upper = lane & 2;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const Key given = odd ? values[2 * pair] : values[2 * pair + 1];
      const Key kept = odd ? values[2 * pair + 1] : values[2 * pair];
      values[pair] = max(kept, __shfl_xor_sync(cuda::kAllLanes, given, 1));
    }
    const Key given = upper ? values[0] : values[1], kept = upper ? values[1] : values[0];
    values[0] = max(kept, __shfl_xor_sync(cuda::kAllLanes, given, 2));
  } else if constexpr (kSets == 2) {
    const bool odd = lane & 1;
    const Key given = odd ? values[0] : values[1], kept = odd ? values[1] : values[0];
    values[0] = max(kept, __shfl_xor_sync(cuda::kAllLanes, given, 1));
  }
  Key result = values[0];
  for (int step = kSets; step < lanes; step <<= 1)
    result = max(result, __shfl_xor_sync(cuda::kAllLanes, result, step));
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
  KeyOf<In> high[kSets], low[kSets];
#pragma unroll
  for (int k = 0; k < kSets; ++k) {
    const uint4 one[1] = {v[k]};
    const Extent<In> extent = tight_extent<In, kAsymmetric>(one);
    high[k] = extent.high;
    low[k] = ~extent.low;
  }
  // From here on a lane stands for one segment of its set, so that their parameters are worked out
  // side by side.
  Extent<In> extent;
  extent.high = scattered_max<kSets>(high, lane, lanes);
  if constexpr (kAsymmetric) extent.low = ~scattered_max<kSets>(low, lane, lanes);
  math::SegmentParameters<C> parameters;
  const bool fast = tight_parameters(args, extent, parameters, std::bool_constant<kAsymmetric>{});
  if (!__all_sync(cuda::kAllLanes, fast)) {
    walk_tight_lanes<In, kCodes, kSets>(args, first, step, rank);
    return;
  }
  const std::uint32_t own = first + (rank & (kSets - 1)) * step;
  if (rank < kSets && own < args.count) store_tight<kAsymmetric>(args, own, parameters);
  auto* codes = reinterpret_cast<cuda::Word<kWordBytes<In, kCodes>>*>(args.output) + place;
  by_body(args, [&](auto divides, auto clamps) {
#pragma unroll
    for (int k = 0; k < kSets; ++k) {
      const C scale = __shfl_sync(cuda::kAllLanes, parameters.scale, k, lanes);
      const C inverse = __shfl_sync(cuda::kAllLanes, parameters.inverse, k, lanes);
      std::int32_t zero_point = 0;
      if constexpr (kAsymmetric)
        zero_point = __shfl_sync(cuda::kAllLanes, parameters.zero_point, k, lanes);
      const Numbers<C> numbers(scale, inverse, zero_point, args.recipe);
      const auto word = encode_tight<In, kCodes, kAsymmetric, divides.value, clamps.value>(
          v[k], numbers, args.recipe, args.order);
      if (full || first + k * step < args.count) cuda::store_once(codes + k * cuda::kWarp, word);
    }
  });
}

}  // namespace planq::dynamic_range_quantize
