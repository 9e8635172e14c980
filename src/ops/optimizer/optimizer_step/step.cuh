// The passes of optimizer_step on CUDA: over all elements of a list of tensors, a tile of a tensor
// at a time. The last one updates. Where an element's result depends on others, passes before it
// find out on what, and leave it in the workspace.
#pragma once

#include "cuda/memory_access.cuh"
#include "cuda/tree_sum.cuh"
#include "math/stochastic.h"
#include "ops/optimizer/maps.cuh"
#include "ops/optimizer/optimizer_step/args.cuh"

namespace planq::optimizer_step::cuda {

using planq::cuda::kAllLanes;

enum class Pass { Norms, Maxima, Update };

// ---- memory ------------------------------------------------------------------------------------

// A quad as it lies in memory. It is unpacked when all loads of a tile are on their way.
struct Raw {
  std::uint32_t word[kQuad];
};

// `kBytes` an element. Those that do not exist are 0.
template <int kBytes>
__device__ __forceinline__ Raw load_raw(const void* data, int64_t first, int count,
                                        bool is_aligned) {
  const auto* const from = static_cast<const planq::cuda::Word<kBytes>*>(data) + first;
  Raw raw{};
  if (is_aligned && count == kQuad) {
    if constexpr (kBytes == 4) {
      const uint4 all = *reinterpret_cast<const uint4*>(from);
      raw.word[0] = all.x, raw.word[1] = all.y, raw.word[2] = all.z, raw.word[3] = all.w;
    } else if constexpr (kBytes == 2) {
      const uint2 all = *reinterpret_cast<const uint2*>(from);
      raw.word[0] = all.x, raw.word[1] = all.y;
    } else {
      raw.word[0] = *reinterpret_cast<const std::uint32_t*>(from);
    }
    return raw;
  }
#pragma unroll
  for (int j = 0; j < kQuad; ++j)
    if (j < count)
      raw.word[j * kBytes / 4] |= static_cast<std::uint32_t>(from[j]) << j * kBytes % 4 * 8;
  return raw;
}
template <int kBytes>
__device__ __forceinline__ std::uint32_t unpacked(const Raw& raw, int j) {
  if constexpr (kBytes == 4) return raw.word[j];
  return raw.word[j * kBytes / 4] >> j * kBytes % 4 * 8 & ((1u << 8 * kBytes) - 1);
}

// Those of `mask`.
template <int kBytes>
__device__ __forceinline__ void store_bits(void* data, int64_t first, unsigned mask,
                                           bool is_aligned, const std::uint32_t (&bits)[kQuad]) {
  using Word = planq::cuda::Word<kBytes>;
  Word* const to = static_cast<Word*>(data) + first;
  if (is_aligned && mask == (1u << kQuad) - 1) {
    if constexpr (kBytes == 4)
      *reinterpret_cast<uint4*>(to) = make_uint4(bits[0], bits[1], bits[2], bits[3]);
    else if constexpr (kBytes == 2)
      *reinterpret_cast<uint2*>(to) = make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
    else
      *reinterpret_cast<std::uint32_t*>(to) =
          bits[0] | bits[1] << 8 | bits[2] << 16 | bits[3] << 24;
    return;
  }
#pragma unroll
  for (int j = 0; j < kQuad; ++j)
    if (mask >> j & 1u) to[j] = static_cast<Word>(bits[j]);
}

__device__ __forceinline__ Raw load_floats(const void* data, DType dtype, int64_t first, int count,
                                           bool is_aligned) {
  return dtype == DType::Float32 ? load_raw<4>(data, first, count, is_aligned)
                                 : load_raw<2>(data, first, count, is_aligned);
}
__device__ __forceinline__ float widened(const Raw& raw, DType dtype, int j) {
  if (dtype == DType::Float32) return __uint_as_float(raw.word[j]);
  const auto half = static_cast<std::uint16_t>(unpacked<2>(raw, j));
  return dtype == DType::Float16 ? math::widen(math::Half{half})
                                 : math::widen(math::Bfloat16{half});
}

__device__ __forceinline__ void store_floats(float* data, int64_t first, unsigned mask,
                                             bool is_aligned, const float (&x)[kQuad]) {
  std::uint32_t bits[kQuad];
#pragma unroll
  for (int j = 0; j < kQuad; ++j) bits[j] = __float_as_uint(math::narrow<float>(x[j]));
  store_bits<4>(data, first, mask, is_aligned, bits);
}

template <class T>
__device__ __forceinline__ std::uint32_t rounded(float x, bool draws, std::uint32_t word) {
  return draws ? math::narrow_stochastic<T>(x, word).bits : math::narrow<T>(x).bits;
}

// ---- a tile ------------------------------------------------------------------------------------

// What a lane has of a tile.
struct Lane {
  float parameter[kQuads][kQuad], gradient[kQuads][kQuad], update[kQuads][kQuad];
  float state[kMostStates][kQuads][kQuad];
  int64_t first[kQuads];     // element of the tensor
  int count[kQuads];         // elements that exist, from there on
  unsigned touched[kQuads];  // bit per element that exists and does not stay as it is
};

template <OptimizerAlgorithm kAlgorithm, StateFormat kFormat, Pass kPass>
class Worker {
 public:
  static constexpr int kStates = optimizer::count_states(kAlgorithm, true);
  static constexpr bool kIsCoded = kFormat != StateFormat::Float32,
                        kIsStatic = kFormat == StateFormat::Static8,
                        kIsLars = kAlgorithm == OptimizerAlgorithm::Lars;
  using Maps = optimizer::cuda::Maps<kAlgorithm>;

  struct Shared {
    Factors factors;
    float sums[2][kMostWarps];
    std::uint32_t maxima[kStates][kMostWarps];
  };

  __device__ __forceinline__ Worker(const StepArgs& args, Shared& shared, const Maps& maps)
      : args_(args), shared_(shared), maps_(maps), rule_(args.rule), factors_(shared.factors) {}

  __device__ __forceinline__ void run() {
    int index = 0;
    for (std::int32_t tile = static_cast<std::int32_t>(blockIdx.x); tile < args_.tiles;
         tile += static_cast<std::int32_t>(gridDim.x)) {
      while (index + 1 < args_.members && tile >= args_.member[index + 1].first_tile) ++index;
      take(index, tile);
    }
  }

 private:
  __device__ __forceinline__ int warp() const { return static_cast<int>(threadIdx.x) / kWarp; }
  __device__ __forceinline__ int lane() const { return static_cast<int>(threadIdx.x) % kWarp; }

  __device__ __forceinline__ void take(int index, std::int32_t tile) {
    const Member& member = args_.member[index];
    const int64_t start =
        static_cast<int64_t>(tile - member.first_tile) * blockDim.x * (kQuads * kQuad);
    Trust trust;
    if (kPass != Pass::Norms && rule_.has_trust())
      trust = args_.memory.trust[args_.first_member + index];
    Lane own;
    load(member, start, own);
    if constexpr (kPass == Pass::Norms) {
      sum_squares(member, start, own, own.parameter, true, args_.memory.parameter_sums);
      if constexpr (kIsLars) {
        sum_squares(member, start, own, own.gradient, false, args_.memory.update_sums);
      } else {
        advance(trust, own);
        sum_squares(member, start, own, own.update, false, args_.memory.update_sums);
      }
      return;
    }
    advance(trust, own);
    if constexpr (kPass == Pass::Maxima) return measure(member, index, own);
    if constexpr (kIsLars)
      sum_squares(member, start, own, own.update, false, args_.memory.update_sums);
    store(member, own);
    if constexpr (kIsCoded) store_codes(member, index, own);
  }

  // --- Elements in

  struct Loaded {
    Raw parameter, gradient, state[kStates];
    float absmax[kStates];
  };

  __device__ __forceinline__ void load(const Member& member, int64_t start, Lane& own) const {
    Loaded loaded[kQuads];
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      own.first[q] = start + warp() * kWarpTile + q * kQuadStride + lane() * kQuad;
      const int64_t left = member.elements - own.first[q];
      own.count[q] = static_cast<int>(left < 0 ? 0 : left < kQuad ? left : kQuad);
      load_quad(member, own.first[q], own.count[q], loaded[q]);
    }
    const DType parameter_dtype = member.tensor.master ? DType::Float32 : args_.parameter_dtype;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
#pragma unroll
      for (int j = 0; j < kQuad; ++j) {
        own.parameter[q][j] = widened(loaded[q].parameter, parameter_dtype, j);
        own.gradient[q][j] = widened(loaded[q].gradient, args_.gradient_dtype, j);
#pragma unroll
        for (int k = 0; k < kStates; ++k)
          if (k < rule_.states) own.state[k][q][j] = state_of(loaded[q], k, j);
      }
    }
    scale(own);
  }

  __device__ __forceinline__ void load_quad(const Member& member, int64_t first, int count,
                                            Loaded& loaded) const {
    const Tensor& tensor = member.tensor;
    const bool is_aligned = member.is_aligned;
    loaded.parameter = tensor.master ? load_raw<4>(tensor.master, first, count, is_aligned)
                                     : load_floats(tensor.parameter, args_.parameter_dtype, first,
                                                   count, is_aligned);
    loaded.gradient = load_floats(tensor.gradient, args_.gradient_dtype, first, count, is_aligned);
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (k >= rule_.states) continue;
      loaded.state[k] = load_raw<kIsCoded ? 1 : 4>(tensor.states[k], first, count, is_aligned);
      if constexpr (kIsCoded) loaded.absmax[k] = old_absmax(member, k, first, count);
    }
  }
  __device__ __forceinline__ float old_absmax(const Member& member, int k, int64_t first,
                                              int count) const {
    if (count == 0) return 0;
    return member.tensor.absmax[k][kIsStatic ? 0 : first >> args_.block_shift];
  }
  __device__ __forceinline__ float state_of(const Loaded& loaded, int k, int j) const {
    if constexpr (kIsCoded)
      return maps_.value(k, unpacked<1>(loaded.state[k], j)) * loaded.absmax[k];
    return __uint_as_float(loaded.state[k].word[j]);
  }

  __device__ __forceinline__ void scale(Lane& own) const {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      own.touched[q] = 0;
#pragma unroll
      for (int j = 0; j < kQuad; ++j) {
        own.gradient[q][j] = factors_.gradient * own.gradient[q][j];
        if (j < own.count[q] && !optimizer::is_untouched(rule_, own.gradient[q][j]))
          own.touched[q] |= 1u << j;
      }
    }
  }

  // Parameters, states and updates, of untouched elements too.
  __device__ __forceinline__ void advance(const Trust& trust, Lane& own) const {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
#pragma unroll
      for (int j = 0; j < kQuad; ++j) {
        States states{};
#pragma unroll
        for (int k = 0; k < kStates; ++k)
          if (k < rule_.states) states.at[k] = own.state[k][q][j];
        const optimizer::Advanced a = optimizer::advanced<kAlgorithm>(
            rule_, factors_, own.parameter[q][j], own.gradient[q][j], states, trust);
#pragma unroll
        for (int k = 0; k < kStates; ++k) own.state[k][q][j] = a.states.at[k];
        own.update[q][j] = a.update;
        own.parameter[q][j] = optimizer::updated(rule_, factors_, a, trust);
      }
    }
  }

  // --- Sums of leaves

  // In the order of math/tree_sum.h: a lane's quads, lanes, a warp's two runs, the warps of a leaf.
  __device__ __forceinline__ void sum_squares(const Member& member, int64_t start, const Lane& own,
                                              const float (&x)[kQuads][kQuad], bool all,
                                              float* leaves) {
    constexpr int kLeafWarps = math::kSumLeaf / kWarpTile;
    float sums[kQuads];
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      float terms[kQuad];
#pragma unroll
      for (int j = 0; j < kQuad; ++j) {
        const bool counts = all ? j < own.count[q] : (own.touched[q] >> j & 1u) != 0;
        terms[j] = counts ? x[q][j] * x[q][j] : 0.0f;
      }
      const planq::cuda::AddNeighbours add;
      sums[q] = planq::cuda::join_lanes(planq::cuda::join_neighbours(terms, add), add);
    }
    float* const of_warps = shared_.sums[0];
    __syncthreads();
    if (lane() == 0) of_warps[warp()] = sums[0] + sums[1];
    __syncthreads();
    const int leaf = warp() / kLeafWarps;
    const int64_t number = start / math::kSumLeaf + leaf;
    if (lane() != 0 || warp() % kLeafWarps != 0 || number * math::kSumLeaf >= member.elements)
      return;
    const float* const parts = of_warps + leaf * kLeafWarps;
    leaves[member.first_leaf + number] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }

  // --- Largest magnitudes

  // Of a quad's new states, and of the old ones' block where some stay.
  __device__ __forceinline__ std::uint32_t largest(int k, int q, float old, const Lane& own) const {
    std::uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < kQuad; ++j) {
      const bool touched = own.touched[q] >> j & 1u;
      const float x = touched ? own.state[k][q][j] : old;
      if (j < own.count[q]) most = max(most, math::magnitude_bits(x));
    }
    return most;
  }

  // Of static8: over all tiles of the tensor.
  __device__ __forceinline__ void measure(const Member& member, int index, const Lane& own) {
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (k >= rule_.states) continue;
      std::uint32_t most = 0;
#pragma unroll
      for (int q = 0; q < kQuads; ++q)
        most = max(most, largest(k, q, old_absmax(member, k, own.first[q], own.count[q]), own));
      most = __reduce_max_sync(kAllLanes, most);
      std::uint32_t* const found =
          args_.memory.maxima + kMostStates * (args_.first_member + index) + k;
      if (lane() == 0 && most > *static_cast<volatile std::uint32_t*>(found))
        atomicMax(found, most);
    }
  }

  // Of blockwise8: of the blocks that the lane's quads are in.
  __device__ __forceinline__ void find_maxima(const Member& member, const Lane& own,
                                              std::uint32_t (&found)[kStates][kQuads]) {
    const int size = 1 << args_.block_shift;
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (k >= rule_.states) continue;
      std::uint32_t most[kQuads];
#pragma unroll
      for (int q = 0; q < kQuads; ++q)
        most[q] = largest(k, q, old_absmax(member, k, own.first[q], own.count[q]), own);
      if (size > kQuadStride) most[0] = most[1] = max(most[0], most[1]);
      const unsigned lanes = size < kQuadStride ? 0xFFFFu << (lane() & 16) : kAllLanes;
#pragma unroll
      for (int q = 0; q < kQuads; ++q) found[k][q] = __reduce_max_sync(lanes, most[q]);
    }
    if (size > kWarpTile) join_warps(size / kWarpTile, found);
  }
  __device__ __forceinline__ void join_warps(int warps, std::uint32_t (&found)[kStates][kQuads]) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      if (k < rule_.states && lane() == 0) shared_.maxima[k][warp()] = found[k][0];
    __syncthreads();
    const int first = warp() / warps * warps;
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (k >= rule_.states) continue;
      std::uint32_t most = 0;
      for (int other = first; other < first + warps; ++other)
        most = max(most, shared_.maxima[k][other]);
      found[k][0] = found[k][1] = most;
    }
  }

  // --- Elements out

  __device__ __forceinline__ void store(const Member& member, const Lane& own) const {
    const Tensor& tensor = member.tensor;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const auto floats = [&](void* data, const float (&x)[kQuad]) {
        store_floats(static_cast<float*>(data), own.first[q], own.touched[q], member.is_aligned, x);
      };
      if (tensor.master) floats(tensor.master, own.parameter[q]);
      if (args_.parameter_dtype == DType::Float32)
        floats(tensor.parameter, own.parameter[q]);
      else
        store_rounded(member, q, own);
      if constexpr (!kIsCoded) {
#pragma unroll
        for (int k = 0; k < kStates; ++k)
          if (k < rule_.states) floats(tensor.states[k], own.state[k][q]);
      }
    }
  }

  // A quad has the words of one value of the counter.
  __device__ __forceinline__ void store_rounded(const Member& member, int q,
                                                const Lane& own) const {
    math::PhiloxWords words{};
    if (args_.draws)
      words = math::philox(math::PhiloxKeys(static_cast<std::uint64_t>(args_.seed.get())),
                           static_cast<std::uint64_t>(args_.offset.get()) +
                               static_cast<std::uint64_t>(own.first[q]) / kQuad,
                           member.id, static_cast<std::uint32_t>(factors_.step));
    std::uint32_t bits[kQuad];
#pragma unroll
    for (int j = 0; j < kQuad; ++j)
      bits[j] = args_.parameter_dtype == DType::Float16
                    ? rounded<math::Half>(own.parameter[q][j], args_.draws, words.word[j])
                    : rounded<math::Bfloat16>(own.parameter[q][j], args_.draws, words.word[j]);
    store_bits<2>(member.tensor.parameter, own.first[q], own.touched[q], member.is_aligned, bits);
  }

  __device__ __forceinline__ void store_codes(const Member& member, int index, const Lane& own) {
    std::uint32_t found[kStates][kQuads] = {};
    if constexpr (!kIsStatic) find_maxima(member, own, found);
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (k >= rule_.states) continue;
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        if constexpr (kIsStatic)
          found[k][q] = args_.memory.maxima[kMostStates * (args_.first_member + index) + k];
        const float absmax = math::stored_absmax(__uint_as_float(found[k][q]));
        const auto block = math::block_division(absmax, Quotient::Reciprocal);
        std::uint32_t codes[kQuad];
#pragma unroll
        for (int j = 0; j < kQuad; ++j) codes[j] = maps_.code(k, own.state[k][q][j], block);
        store_bits<1>(member.tensor.states[k], own.first[q], own.touched[q], member.is_aligned,
                      codes);
        const bool begins =
            !kIsStatic && (own.first[q] & ((int64_t{1} << args_.block_shift) - 1)) == 0;
        if (begins && own.count[q] > 0)
          member.tensor.absmax[k][own.first[q] >> args_.block_shift] = absmax;
      }
    }
  }

  const StepArgs& args_;
  Shared& shared_;
  const Maps& maps_;
  const Rule& rule_;
  const Factors& factors_;
};

template <OptimizerAlgorithm kAlgorithm, StateFormat kFormat, Pass kPass>
__global__ void __maxnreg__(80) run_pass(const __grid_constant__ StepArgs args) {
  using Work = Worker<kAlgorithm, kFormat, kPass>;
  __shared__ typename Work::Shared shared;
  extern __shared__ __align__(16) unsigned char dynamic[];
  auto& maps = *reinterpret_cast<typename Work::Maps*>(dynamic);
  if (threadIdx.x == 0) shared.factors = factors_in(args);
  if constexpr (Work::kIsCoded) maps.build(args.codebooks);
  __syncthreads();
  if (shared.factors.skips) return;
  Work(args, shared, maps).run();
}

}  // namespace planq::optimizer_step::cuda
