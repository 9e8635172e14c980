// The passes of optimizer_step on CUDA: over all elements of a list of tensors, a tile of a tensor
// at a time. The last one updates. Where an element's result depends on others, passes before it
// find out on what, and leave it in the workspace.
#pragma once

#include "cuda/memory_access.cuh"
#include "cuda/reduce.cuh"
#include "cuda/tree_sum.cuh"
#include "math/stochastic.h"
#include "ops/optimizer/maps.cuh"
#include "ops/optimizer/optimizer_step/args.cuh"
#include "ops/optimizer/quotients.cuh"

namespace planq::optimizer_step::cuda {

using planq::cuda::kAllLanes;

enum class Pass { Norms, Maxima, Update };

// ---- memory ------------------------------------------------------------------------------------

// Elements as they lie in memory. They are unpacked when all loads of a tile are on their way.
template <int kBytes>
struct Raw {
  std::uint32_t word[kEach * kBytes / 4];
};
using RawFloats = Raw<4>;  // or, in the first half, numbers of two bytes

// Where a lane's elements are: in one run, or in quads that are kApart apart, so that a warp loads
// 16 bytes a lane side by side whatever the type.
struct Place {
  int64_t first;    // element of the tensor
  unsigned exists;  // bit per element
  bool is_whole;    // vectors may be loaded and stored
};

template <StateFormat kFormat>
class Layout {
 public:
  static constexpr bool kIsRun = kFormat != StateFormat::Float32;
  static constexpr int kSide = kIsRun ? kEach : kQuad, kApart = kIsRun ? kQuad : kWarp * kQuad;

  static __device__ __forceinline__ constexpr int at(int j) {
    return j / kQuad * kApart + j % kQuad;
  }
  // Where those of the calling lane begin in a tile.
  static __device__ __forceinline__ int first() {
    const int thread = static_cast<int>(threadIdx.x);
    return kIsRun ? thread * kEach : thread / kWarp * kWarpTile + thread % kWarp * kSide;
  }
  static __device__ __forceinline__ Place whole_place(int64_t start) {
    return {start + first(), kAllElements, true};
  }
  static __device__ __forceinline__ Place place(const Member& member, int64_t start) {
    Place place{start + first(), 0, false};
    const int64_t left = member.elements - place.first;
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      if (at(j) < left) place.exists |= 1u << j;
    place.is_whole = member.is_aligned && place.exists == kAllElements;
    return place;
  }

  // `kBytes` an element. Those that do not exist are 0.
  template <int kBytes, int kWords>
  static __device__ __forceinline__ void load(const void* data, const Place& place,
                                              std::uint32_t (&word)[kWords]) {
    constexpr int kRunWords = kSide * kBytes / 4;
    const auto* const from = static_cast<const planq::cuda::Word<kBytes>*>(data) + place.first;
    if (place.is_whole) {
#pragma unroll
      for (int q = 0; q < kEach / kSide; ++q)
        load_words<kRunWords>(from + q * kApart, &word[q * kRunWords]);
      return;
    }
#pragma unroll
    for (int i = 0; i < kEach * kBytes / 4; ++i) word[i] = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      if (place.exists >> j & 1u)
        word[j * kBytes / 4] |= static_cast<std::uint32_t>(from[at(j)]) << j * kBytes % 4 * 8;
  }

  // Elements of `mask`, whose bits are as they lie in memory.
  template <int kBytes, int kWords>
  static __device__ __forceinline__ void store(void* data, const Place& place, unsigned mask,
                                               const std::uint32_t (&word)[kWords]) {
    constexpr int kRunWords = kSide * kBytes / 4;
    using Word = planq::cuda::Word<kBytes>;
    Word* const to = static_cast<Word*>(data) + place.first;
    if (place.is_whole && mask == kAllElements) {
#pragma unroll
      for (int q = 0; q < kEach / kSide; ++q)
        store_words<kRunWords>(to + q * kApart, &word[q * kRunWords]);
      return;
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      if (mask >> j & 1u) to[at(j)] = static_cast<Word>(word[j * kBytes / 4] >> j * kBytes % 4 * 8);
  }

 private:
  template <int kCount>
  static __device__ __forceinline__ void load_words(const void* from, std::uint32_t* word) {
    if constexpr (kCount >= 4) {
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i) {
        const uint4 all = static_cast<const uint4*>(from)[i];
        word[4 * i] = all.x, word[4 * i + 1] = all.y;
        word[4 * i + 2] = all.z, word[4 * i + 3] = all.w;
      }
    } else {
      static_assert(kCount == 2);
      const uint2 all = *static_cast<const uint2*>(from);
      word[0] = all.x, word[1] = all.y;
    }
  }
  template <int kCount>
  static __device__ __forceinline__ void store_words(void* to, const std::uint32_t* word) {
    if constexpr (kCount >= 4) {
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i)
        static_cast<uint4*>(to)[i] =
            make_uint4(word[4 * i], word[4 * i + 1], word[4 * i + 2], word[4 * i + 3]);
    } else {
      static_assert(kCount == 2);
      *static_cast<uint2*>(to) = make_uint2(word[0], word[1]);
    }
  }
};

// ---- conversions -------------------------------------------------------------------------------

template <class T>
__device__ __forceinline__ void widen_halves(const RawFloats& raw, float (&x)[kEach]) {
#pragma unroll
  for (int j = 0; j < kEach; ++j)
    x[j] = math::widen(T{static_cast<std::uint16_t>(raw.word[j / 2] >> 16 * (j % 2))});
}
__device__ __forceinline__ void widen(const RawFloats& raw, DType dtype, float (&x)[kEach]) {
  if (dtype == DType::BFloat16) return widen_halves<math::Bfloat16>(raw, x);
  if (dtype == DType::Float16) return widen_halves<math::Half>(raw, x);
#pragma unroll
  for (int j = 0; j < kEach; ++j) x[j] = __uint_as_float(raw.word[j]);
}

// Whether one is infinite or NaN, by a NaN that goes from sum to sum.
__device__ __forceinline__ bool any_nonfinite(const float (&x)[kEach]) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) sum = __fmaf_rn(x[j], 0.0f, sum);
  return sum != sum;
}

__device__ __forceinline__ void narrow_floats(const float (&x)[kEach],
                                              std::uint32_t (&word)[kEach]) {
#pragma unroll
  for (int j = 0; j < kEach; ++j) word[j] = __float_as_uint(x[j]);
  if (!any_nonfinite(x)) return;
#pragma unroll
  for (int j = 0; j < kEach; ++j) word[j] = __float_as_uint(math::narrow<float>(x[j]));
}
template <class T>
__device__ __forceinline__ void narrow_halves(const float (&x)[kEach],
                                              std::uint32_t (&word)[kEach / 2]) {
#pragma unroll
  for (int j = 0; j < kEach; j += 2) word[j / 2] = planq::cuda::pair_of(x[j], x[j + 1], T{});
  if (!any_nonfinite(x)) return;  // of which a NaN would not be the canonical one
#pragma unroll
  for (int j = 0; j < kEach; j += 2)
    word[j / 2] = std::uint32_t{math::narrow<T>(x[j]).bits} |
                  std::uint32_t{math::narrow<T>(x[j + 1]).bits} << 16;
}

// ---- a tile ------------------------------------------------------------------------------------

// What a lane has of a tile.
template <int kStates>
struct Lane {
  float parameter[kEach], gradient[kEach], update[kEach], state[kStates][kEach];
  float absmax[kStates];  // of the block, before the step
  unsigned touched;       // bit per element that exists and does not stay as it is
};

template <OptimizerAlgorithm kAlgorithm, StateFormat kFormat, Pass kPass>
class Worker {
 public:
  static constexpr int kStates = optimizer::count_states(kAlgorithm, true);
  static constexpr bool kIsCoded = kFormat != StateFormat::Float32,
                        kIsStatic = kFormat == StateFormat::Static8,
                        kIsLars = kAlgorithm == OptimizerAlgorithm::Lars;
  // A step that is plain has no norms but for these algorithms.
  static constexpr bool kNeedsTrust = kIsLars || kAlgorithm == OptimizerAlgorithm::Lamb,
                        kHasPlain = kPass != Pass::Norms || kNeedsTrust;
  // The norms of lars are of parameters and gradients alone.
  static constexpr bool kHasStates = !(kIsLars && kPass == Pass::Norms);
  static constexpr int kTile = kThreads<kFormat> * kEach;
  using Maps = optimizer::cuda::Maps<kAlgorithm>;
  using Layout = cuda::Layout<kFormat>;
  using Lane = cuda::Lane<kStates>;

  struct Shared {
    Factors factors;
    float sums[2][2][kMostWarps];  // taken in turns
    std::uint32_t maxima[kStates][kMostWarps];
  };

  __device__ __forceinline__ Worker(const StepArgs& args, Shared& shared, const Maps& maps)
      : args_(args), shared_(shared), maps_(maps), rule_(args.rule) {}

  __device__ __forceinline__ void run() {
    DType plain = args_.plain;
    if constexpr (kIsCoded && kHasStates)
      if (!maps_.are_compiled()) plain = DType::Unset;
    int index = 0;
    for (auto tile = static_cast<std::int32_t>(blockIdx.x); tile < args_.tiles;
         tile += static_cast<std::int32_t>(gridDim.x)) {
      while (index + 1 < args_.members && tile >= args_.member[index + 1].first_tile) ++index;
      const Member& member = args_.member[index];
      const int64_t start = int64_t{tile - member.first_tile} * kTile;
      const bool is_whole = member.is_aligned && start + kTile <= member.elements;
      if (kHasPlain && is_whole && plain == DType::BFloat16)
        take<DType::BFloat16>(index, Layout::whole_place(start));
      else if (kHasPlain && !kIsCoded && is_whole && plain == DType::Float32)
        take<DType::Float32>(index, Layout::whole_place(start));
      else
        take<DType::Unset>(index, Layout::place(member, start));
    }
  }

 private:
  static constexpr int kStateBytes = kIsCoded ? 1 : 4;
  // kPlain: StepArgs::plain, of a tile whose elements all exist, and of which vectors may be
  // loaded. Nothing is asked then that is known.
  template <DType kPlain>
  static constexpr bool kIsPlain = kPlain != DType::Unset;

  // A tile as it was loaded, with its tensor and its place there.
  struct Fetched {
    int index;
    Place place;
    RawFloats parameter, gradient;
    Raw<kStateBytes> state[kStates];
    float absmax[kStates];
  };

  __device__ __forceinline__ int warp() const { return static_cast<int>(threadIdx.x) / kWarp; }
  __device__ __forceinline__ int lane() const { return static_cast<int>(threadIdx.x) % kWarp; }
  // Only that of centered averages may be missing.
  template <DType kPlain>
  __device__ __forceinline__ bool has_state(int k) const {
    return k < optimizer::count_states(kAlgorithm, false) ||
           (!kIsPlain<kPlain> && k < rule_.states);
  }
  __device__ __forceinline__ const Member& member_of(const Fetched& fetched) const {
    return args_.member[fetched.index];
  }

  // --- Elements in

  template <DType kPlain>
  __device__ __forceinline__ DType parameter_dtype() const {
    return kIsPlain<kPlain> ? kPlain : args_.parameter_dtype;
  }
  template <DType kPlain>
  __device__ __forceinline__ DType gradient_dtype() const {
    return kIsPlain<kPlain> ? kPlain : args_.gradient_dtype;
  }
  template <DType kPlain>
  __device__ __forceinline__ void fetch(Fetched& fetched) const {
    const Member& member = member_of(fetched);
    const Place& place = fetched.place;
    const Tensor& tensor = member.tensor;
    if (!kIsPlain<kPlain> && tensor.master)
      Layout::template load<4>(tensor.master, place, fetched.parameter.word);
    else
      load_floats(tensor.parameter, parameter_dtype<kPlain>(), place, fetched.parameter);
    load_floats(tensor.gradient, gradient_dtype<kPlain>(), place, fetched.gradient);
    if constexpr (kHasStates) {
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        if (!has_state<kPlain>(k)) continue;
        Layout::template load<kStateBytes>(tensor.states[k], place, fetched.state[k].word);
        if constexpr (kIsCoded) fetched.absmax[k] = old_absmax(tensor, k, place);
      }
    }
  }
  __device__ __forceinline__ void load_floats(const void* data, DType dtype, const Place& place,
                                              RawFloats& raw) const {
    if (dtype == DType::Float32)
      Layout::template load<4>(data, place, raw.word);
    else
      Layout::template load<2>(data, place, raw.word);
  }
  __device__ __forceinline__ float old_absmax(const Tensor& tensor, int k,
                                              const Place& place) const {
    if (place.exists == 0) return 0;
    return tensor.absmax[k][kIsStatic ? 0 : place.first >> args_.block_shift];
  }

  template <DType kPlain>
  __device__ __forceinline__ void unpack(const Fetched& fetched, const Factors& factors,
                                         Lane& own) const {
    const bool has_master = !kIsPlain<kPlain> && member_of(fetched).tensor.master != nullptr;
    widen(fetched.parameter, has_master ? DType::Float32 : parameter_dtype<kPlain>(),
          own.parameter);
    widen(fetched.gradient, gradient_dtype<kPlain>(), own.gradient);
    if constexpr (kHasStates) {
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        if (!has_state<kPlain>(k)) continue;
        if constexpr (kIsCoded) {
          own.absmax[k] = fetched.absmax[k];
          maps_.template decode<kIsPlain<kPlain>>(k, fetched.state[k].word, fetched.absmax[k],
                                                  own.state[k]);
        } else {
#pragma unroll
          for (int j = 0; j < kEach; ++j)
            own.state[k][j] = __uint_as_float(fetched.state[k].word[j]);
        }
      }
    }
    if (factors.gradient != 1) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) own.gradient[j] = factors.gradient * own.gradient[j];
    }
    own.touched = fetched.place.exists;
    if constexpr (!kIsPlain<kPlain>) {
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        if (optimizer::is_untouched(rule_, own.gradient[j])) own.touched &= ~(1u << j);
    }
  }

  // --- The step

  template <DType kPlain>
  __device__ __forceinline__ Rule known_rule() const {
    Rule rule = rule_;
    if (kIsPlain<kPlain>) rule.centered = false;
    return rule;
  }

  template <DType kPlain>
  __device__ __forceinline__ void take(int index, const Place& place) {
    Fetched fetched;
    fetched.index = index;
    fetched.place = place;
    fetch<kPlain>(fetched);
    const Factors factors = shared_.factors;
    Trust trust;
    if (kPass != Pass::Norms && has_trust<kPlain>())
      trust = args_.memory.trust[args_.first_member + index];
    Lane own;
    unpack<kPlain>(fetched, factors, own);
    if constexpr (kPass == Pass::Norms) return measure_norms<kPlain>(fetched, factors, own);
    advance<kPlain>(factors, trust, own);
    if constexpr (kPass == Pass::Maxima) return measure_maxima<kPlain>(fetched, own);
    if constexpr (kIsLars) {
      const float updates[] = {sum_of_squares(own.update, own.touched)};
      store_sums(fetched, updates, {args_.memory.update_sums});
    }
    finish(factors, trust, own);
    store<kPlain>(fetched, factors, own);
    if constexpr (kIsCoded) store_codes<kPlain>(fetched, own);
  }

  template <DType kPlain>
  __device__ __forceinline__ bool has_trust() const {
    return kNeedsTrust || (!kIsPlain<kPlain> && rule_.clips);
  }

  // New states and updates, of untouched elements too: optimizer::advanced(), with one decision
  // for all elements.
  template <DType kPlain>
  __device__ __forceinline__ void advance(const Factors& f, const Trust& trust, Lane& own) const {
    const Rule rule = known_rule<kPlain>();
    if (rule_.decoupled && f.decays) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) own.parameter[j] = optimizer::shrunk(f, own.parameter[j]);
    }
    if ((kIsLars || rule_.coupled) && f.decays) {
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        own.gradient[j] = optimizer::pulled(f, own.parameter[j], own.gradient[j]);
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float g = kIsLars ? trust.state * own.gradient[j] : own.gradient[j];
      States states = states_of<kPlain>(own, j);
      own.update[j] = optimizer::advance<kAlgorithm>(rule, f, g, states);
#pragma unroll
      for (int k = 0; k < kStates; ++k) own.state[k][j] = states.at[k];
    }
    if constexpr (optimizer::divides(kAlgorithm)) divide<kPlain>(f, own);
  }
  template <DType kPlain>
  __device__ __forceinline__ States states_of(const Lane& own, int j) const {
    States states{};
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      if (has_state<kPlain>(k)) states.at[k] = own.state[k][j];
    return states;
  }
  template <DType kPlain>
  __device__ __forceinline__ void divide(const Factors& f, Lane& own) const {
    const Rule rule = known_rule<kPlain>();
    float numerators[kEach], radicands[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const auto fraction =
          optimizer::fraction_of<kAlgorithm>(rule, f, own.gradient[j], states_of<kPlain>(own, j));
      numerators[j] = fraction.numerator, radicands[j] = fraction.radicand;
    }
    if (optimizer::cuda::are_ordinary(numerators, radicands, f.eps)) {
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        own.update[j] = optimizer::cuda::ordinary_quotient(numerators[j], radicands[j], f.eps);
    } else {
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        own.update[j] = optimizer::cuda::quotient_aside(numerators[j], radicands[j], f.eps);
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      own.update[j] = optimizer::update_of<kAlgorithm>(f, own.parameter[j], own.update[j]);
  }
  // New parameters.
  __device__ __forceinline__ void finish(const Factors& f, const Trust& trust, Lane& own) const {
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      own.parameter[j] = optimizer::stepped(f, own.parameter[j], own.update[j], trust);
    if (!rule_.after || !f.decays) return;
#pragma unroll
    for (int j = 0; j < kEach; ++j) own.parameter[j] = optimizer::shrunk(f, own.parameter[j]);
  }

  // --- Sums of leaves

  template <DType kPlain>
  __device__ __forceinline__ void measure_norms(const Fetched& fetched, const Factors& factors,
                                                Lane& own) {
    const float parameters = sum_of_squares(own.parameter, fetched.place.exists);
    if constexpr (!kIsLars) advance<kPlain>(factors, {}, own);
    const float sums[] = {parameters,
                          sum_of_squares(kIsLars ? own.gradient : own.update, own.touched)};
    store_sums(fetched, sums, {args_.memory.parameter_sums, args_.memory.update_sums});
  }

  // Of a warp's elements, those of `mask`, in the order of math/tree_sum.h: a lane's elements,
  // lanes, and the runs of a warp.
  __device__ __forceinline__ float sum_of_squares(const float (&x)[kEach], unsigned mask) const {
    constexpr int kRuns = kEach / Layout::kSide;
    const planq::cuda::AddNeighbours add;
    float sums[kRuns];
#pragma unroll
    for (int q = 0; q < kRuns; ++q) {
      float terms[Layout::kSide];
#pragma unroll
      for (int i = 0; i < Layout::kSide; ++i) {
        const int j = q * Layout::kSide + i;
        terms[i] = mask >> j & 1u ? x[j] * x[j] : 0.0f;
      }
      sums[q] = planq::cuda::join_lanes(planq::cuda::join_neighbours(terms, add), add);
    }
    return planq::cuda::join_neighbours(sums, add);
  }

  // The sums of the warps of each leaf, to where those of leaves are.
  template <int kCount>
  __device__ __forceinline__ void store_sums(const Fetched& fetched, const float (&sums)[kCount],
                                             float* const (&leaves)[kCount]) {
    constexpr int kLeafWarps = math::kSumLeaf / kWarpTile;
    auto& of_warps = shared_.sums[turn_];
    turn_ ^= 1;  // a warp that is ahead by a tile writes to the other array
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (lane() == 0) of_warps[i][warp()] = sums[i];
    __syncthreads();
    const int64_t number = fetched.place.first / math::kSumLeaf;
    if (lane() != 0 || warp() % kLeafWarps != 0 || fetched.place.exists == 0) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float* const parts = &of_warps[i][warp()];
      leaves[i][member_of(fetched).first_leaf + number] =
          (parts[0] + parts[1]) + (parts[2] + parts[3]);
    }
  }

  // --- Largest magnitudes

  // Of a lane's new states, and of the old ones' block where some stay.
  __device__ __forceinline__ std::uint32_t largest(int k, const Place& place,
                                                   const Lane& own) const {
    if (own.touched == kAllElements)
      return __float_as_uint(optimizer::cuda::largest_or_nan(own.state[k]));
    std::uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const bool is_touched = own.touched >> j & 1u;
      const float x = is_touched ? own.state[k][j] : own.absmax[k];
      if (place.exists >> j & 1u) most = max(most, math::magnitude_bits(x));
    }
    return most;
  }

  // Of static8: over all tiles of the tensor.
  template <DType kPlain>
  __device__ __forceinline__ void measure_maxima(const Fetched& fetched, const Lane& own) {
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (!has_state<kPlain>(k)) continue;
      const std::uint32_t most = __reduce_max_sync(kAllLanes, largest(k, fetched.place, own));
      std::uint32_t* const found = maxima_of(fetched) + k;
      if (lane() == 0 && most > *static_cast<volatile std::uint32_t*>(found))
        atomicMax(found, most);
    }
  }
  __device__ __forceinline__ std::uint32_t* maxima_of(const Fetched& fetched) const {
    return args_.memory.maxima + kMostStates * (args_.first_member + fetched.index);
  }

  // Of blockwise8: of the block that the lane's elements are in.
  template <DType kPlain>
  __device__ __forceinline__ void find_maxima(const Place& place, const Lane& own,
                                              std::uint32_t (&found)[kStates]) {
    const int size = 1 << args_.block_shift;
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (!has_state<kPlain>(k)) continue;
      const std::uint32_t most = largest(k, place, own);
      found[k] = size >= kWarpTile ? __reduce_max_sync(kAllLanes, most)
                                   : planq::cuda::subwarp_max(most, size / kEach);
    }
    if (size > kWarpTile) join_warps<kPlain>(size / kWarpTile, found);
  }
  template <DType kPlain>
  __device__ __forceinline__ void join_warps(int warps, std::uint32_t (&found)[kStates]) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      if (has_state<kPlain>(k) && lane() == 0) shared_.maxima[k][warp()] = found[k];
    __syncthreads();
    const int first = warp() / warps * warps;
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (!has_state<kPlain>(k)) continue;
      std::uint32_t most = 0;
      for (int other = first; other < first + warps; ++other)
        most = max(most, shared_.maxima[k][other]);
      found[k] = most;
    }
  }

  // --- Elements out

  template <DType kPlain>
  __device__ __forceinline__ void store(const Fetched& fetched, const Factors& factors,
                                        const Lane& own) const {
    const Tensor& tensor = member_of(fetched).tensor;
    if (!kIsPlain<kPlain> && tensor.master)
      store_floats(tensor.master, fetched.place, own.touched, own.parameter);
    if (parameter_dtype<kPlain>() == DType::Float32) {
      store_floats(tensor.parameter, fetched.place, own.touched, own.parameter);
    } else {
      std::uint32_t words[kEach / 2];
      if (!kIsPlain<kPlain> && args_.draws)
        draw(fetched, factors, own.parameter, words);
      else if (parameter_dtype<kPlain>() == DType::Float16)
        narrow_halves<math::Half>(own.parameter, words);
      else
        narrow_halves<math::Bfloat16>(own.parameter, words);
      Layout::template store<2>(tensor.parameter, fetched.place, own.touched, words);
    }
    if constexpr (!kIsCoded) {
#pragma unroll
      for (int k = 0; k < kStates; ++k)
        if (has_state<kPlain>(k))
          store_floats(tensor.states[k], fetched.place, own.touched, own.state[k]);
    }
  }
  __device__ __forceinline__ static void store_floats(void* data, const Place& place,
                                                      unsigned touched, const float (&x)[kEach]) {
    std::uint32_t words[kEach];
    narrow_floats(x, words);
    Layout::template store<4>(data, place, touched, words);
  }

  // Stochastic rounding: a quad has the words of one value of the counter.
  __device__ __forceinline__ void draw(const Fetched& fetched, const Factors& factors,
                                       const float (&x)[kEach],
                                       std::uint32_t (&words)[kEach / 2]) const {
    const math::PhiloxKeys keys(static_cast<std::uint64_t>(args_.seed.get()));
#pragma unroll
    for (int q = 0; q < kEach; q += kQuad) {
      const auto quad = static_cast<std::uint64_t>(fetched.place.first + Layout::at(q)) / kQuad;
      const math::PhiloxWords random =
          math::philox(keys, static_cast<std::uint64_t>(args_.offset.get()) + quad,
                       member_of(fetched).id, static_cast<std::uint32_t>(factors.step));
#pragma unroll
      for (int j = 0; j < kQuad; j += 2)
        words[(q + j) / 2] =
            drawn(x[q + j], random.word[j]) | drawn(x[q + j + 1], random.word[j + 1]) << 16;
    }
  }
  __device__ __forceinline__ std::uint32_t drawn(float x, std::uint32_t word) const {
    return args_.parameter_dtype == DType::Float16
               ? math::narrow_stochastic<math::Half>(x, word).bits
               : math::narrow_stochastic<math::Bfloat16>(x, word).bits;
  }

  template <DType kPlain>
  __device__ __forceinline__ void store_codes(const Fetched& fetched, Lane& own) {
    const Tensor& tensor = member_of(fetched).tensor;
    const Place& place = fetched.place;
    std::uint32_t found[kStates] = {};
    if constexpr (!kIsStatic) find_maxima<kPlain>(place, own, found);
    const bool begins = !kIsStatic && (place.first & ((int64_t{1} << args_.block_shift) - 1)) == 0;
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (!has_state<kPlain>(k)) continue;
      if constexpr (kIsStatic) found[k] = maxima_of(fetched)[k];
      const float absmax = math::stored_absmax(__uint_as_float(found[k]));
      if (begins && place.exists != 0) tensor.absmax[k][place.first >> args_.block_shift] = absmax;
      if (own.touched != kAllElements) clear_untouched(own, k);
      Raw<1> codes;
      maps_.template encode<kIsPlain<kPlain>>(k, own.state[k], absmax, codes.word);
      Layout::template store<1>(tensor.states[k], place, own.touched, codes.word);
    }
  }
  // What is not stored may be larger than absmax, which bounds what is searched for.
  __device__ __forceinline__ static void clear_untouched(Lane& own, int k) {
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      if (!(own.touched >> j & 1u)) own.state[k][j] = 0;
  }

  const StepArgs& args_;
  Shared& shared_;
  const Maps& maps_;
  const Rule& rule_;
  int turn_ = 0;
};

// What every GPU has for a block.
inline constexpr std::size_t kMostShared = 99 << 10, kOtherShared = 1 << 10;

template <OptimizerAlgorithm kAlgorithm, StateFormat kFormat, Pass kPass>
__global__ void __launch_bounds__(kThreads<kFormat>, kBlocks<kFormat>)
    run_pass(const __grid_constant__ StepArgs args) {
  using Work = Worker<kAlgorithm, kFormat, kPass>;
  static_assert(sizeof(typename Work::Maps) + sizeof(typename Work::Shared) + kOtherShared <=
                kMostShared);
  __shared__ typename Work::Shared shared;
  auto& maps = *static_cast<typename Work::Maps*>(planq::cuda::dynamic_shared());
  if (threadIdx.x == 0) shared.factors = factors_in(args);
  if constexpr (Work::kIsCoded && Work::kHasStates) maps.build(args.codebooks);
  __syncthreads();
  if (shared.factors.skips) return;
  Work(args, shared, maps).run();
}

}  // namespace planq::optimizer_step::cuda
