// A tensor with one scale, read once: blocks that all run at the same time hold it in shared memory
// and in registers while they agree on its range. What does not fit is read a second time,
// beginning with what the cache still holds.
#pragma once

#include <cooperative_groups.h>

#include "cuda/launch.cuh"
#include "ops/affine/heuristics_sm90.h"
#include "ops/affine/segments/split.cuh"

namespace planq::affine {

inline constexpr int kResidentThreads = 1024;  // of a block; a multiprocessor has one
// Vectors of a thread. Shared memory comes first, so that a small tensor needs no registers.
inline constexpr int kHeldShared = 12;
inline constexpr int kHeldRegisters = 8;
inline constexpr int kHeldBytes = kResidentThreads * kHeldShared * cuda::kVectorBytes;

// The vectors of a thread: number, number + step, ...
template <class In>
struct ResidentPlace {
  const uint4* input;
  std::uint32_t count, first, step;

  __device__ __forceinline__ explicit ResidentPlace(const SplitArgs<In>& args)
      : input(reinterpret_cast<const uint4*>(args.input)),
        count(static_cast<std::uint32_t>(static_cast<std::uint64_t>(args.length) / kPerVector<In>)),
        first(blockIdx.x * kResidentThreads + threadIdx.x),
        step(gridDim.x * kResidentThreads) {}

  __device__ __forceinline__ std::uint32_t at(int round) const { return first + round * step; }
  // Whether any thread of the block has a vector in this round.
  __device__ __forceinline__ bool reaches(int round) const {
    return at(round) - threadIdx.x < count;
  }
  // Past the end the last vector comes again, which changes no maximum.
  __device__ __forceinline__ const uint4* clamped(std::uint32_t i) const {
    return input + min(i, count - 1);
  }
};

template <class In>
__device__ __noinline__ KeyRange<In> finite_resident(const SplitArgs<In>& args,
                                                     const ResidentPlace<In>& place) {
  KeyRange<In> key_range;
#pragma unroll 1
  for (std::uint32_t i = place.first; i < place.count; i += place.step)
    add_finite(args.input, i, args.spec.mode == Mode::Symmetric, key_range);
  return key_range;
}

template <class In, Codes kCodes, Variant kVariant, bool kAsymmetric>
__device__ __noinline__ void walk_resident(const SplitArgs<In>& args,
                                           const ResidentPlace<In>& place,
                                           const math::SegmentParameters<Compute<In>>& parameters) {
  const auto spec = known_spec<kVariant, kAsymmetric>(args.spec);
#pragma unroll 1
  for (std::uint32_t i = place.first; i < place.count; i += place.step)
    walk_codes<In, kCodes>(args.input + static_cast<std::int64_t>(i) * kPerVector<In>,
                           args.output + static_cast<std::int64_t>(i) * kWordBytes<In, kCodes>,
                           kPerVector<In>, spec, parameters, args.order, 0, 1);
}

template <class In, Codes kCodes, Variant kVariant, bool kAsymmetric>
__global__ void __launch_bounds__(kResidentThreads, 1)
    quantize_resident(const __grid_constant__ SplitArgs<In> args) {
  using C = Compute<In>;
  constexpr int kWarps = kResidentThreads / cuda::kWarp;
  constexpr int kHeld = kHeldShared + kHeldRegisters;
  extern __shared__ uint4 shared[];
  uint4* const mine = shared + threadIdx.x;  // a thread reads what it wrote, and no other's
  const ResidentPlace<In> place(args);

#pragma unroll
  for (int k = 0; k < kHeldShared; ++k)
    if (place.at(k) < place.count)
      cuda::copy_once(mine + k * kResidentThreads, place.input + place.at(k));
  uint4 v[kHeldRegisters];
#pragma unroll
  for (int k = 0; k < kHeldRegisters; ++k)
    v[k] = cuda::load_once(place.clamped(place.at(kHeldShared + k)));
  Collector<In> collector;
  const auto add = [&](const uint4& vector) {
    kAsymmetric ? collector.add_ordered(vector) : collector.add_magnitudes(vector);
  };
#pragma unroll
  for (int k = 0; k < kHeldRegisters; ++k) add(v[k]);
#pragma unroll 1
  for (std::uint32_t i = place.at(kHeld); i < place.count; i += kFlatVectors * place.step) {
    uint4 rest[kFlatVectors];
#pragma unroll
    for (int k = 0; k < kFlatVectors; ++k)
      rest[k] = cuda::load_kept(place.clamped(i + k * place.step));
#pragma unroll
    for (int k = 0; k < kFlatVectors; ++k) add(rest[k]);
  }
  cuda::wait_for_copies();
#pragma unroll 6
  for (int k = 0; k < kHeldShared; ++k)
    if (place.at(k) < place.count) add(mine[k * kResidentThreads]);

  Partial<In> partial{collector.key_range(), 0};
  if (partial.key_range.special()) {
    partial.special = 1;
    if (args.spec.nonfinite == NonFinite::Saturate)
      partial.key_range = finite_resident(args, place);
  }
  partial = block_partial<In, kWarps>(partial, !kAsymmetric);
  if (threadIdx.x == 0) args.partials[blockIdx.x] = partial;
  cooperative_groups::this_grid().sync();

  Partial<In> all{};
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kResidentThreads) all.add(args.partials[i]);
  all = block_partial<In, kWarps>(all, !kAsymmetric);
  const auto range = range_of(all.key_range, !kAsymmetric, all.special != 0);
  const auto spec = known_spec<kVariant, kAsymmetric>(args.spec);
  const auto parameters = math::segment_parameters(spec, range);
  if (place.first == 0) {
    store_scale(args.scale, 0, parameters.scale, spec.scale_dtype);
    if constexpr (kAsymmetric) cuda::store_once(args.zero_point, parameters.zero_point);
  }
  if (!is_fast(spec, parameters, range)) {
    walk_resident<In, kCodes, kVariant, kAsymmetric>(args, place, parameters);
    return;
  }
  const Numbers<C> numbers(parameters, args.spec);
  auto* words = reinterpret_cast<cuda::Word<kWordBytes<In, kCodes>>*>(args.output);
  by_variant<kVariant, kCodes, kAsymmetric>(args, [&](auto divides, auto bounds) {
    const auto put = [&](std::uint32_t i, const uint4& vector) {
      const auto word = encode<In, kCodes, kAsymmetric, divides.value, bounds.value>(
          vector, numbers, args.spec, args.order);
      if (i < place.count) cuda::store_once(words + i, word);
    };
    // Backwards, in the rounds of four of the first read.
    const std::uint32_t begin = place.at(kHeld), four = kFlatVectors * place.step;
    if (begin < place.count) {
#pragma unroll 1
      for (std::int64_t i = begin + (place.count - 1 - begin) / four * four; i >= begin;
           i -= four) {
        const auto from = static_cast<std::uint32_t>(i);
        uint4 rest[kFlatVectors];
#pragma unroll
        for (int k = 0; k < kFlatVectors; ++k)
          rest[k] = cuda::load_once(place.clamped(from + k * place.step));
#pragma unroll
        for (int k = 0; k < kFlatVectors; ++k) put(from + k * place.step, rest[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < kHeldRegisters; ++k)
      if (place.reaches(kHeldShared + k)) put(place.at(kHeldShared + k), v[k]);
#pragma unroll 6
    for (int k = 0; k < kHeldShared; ++k)
      if (place.reaches(k)) put(place.at(k), mine[k * kResidentThreads]);
  });
}

}  // namespace planq::affine
