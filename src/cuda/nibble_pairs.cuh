// Kernels over core/nibble_pairs.h: what packing and unpacking share. A Work says what is done with
// a vector and with a byte; a body here walks either. Vectors need operands that begin where
// vectors do, and the bodies for bytes take everything else.
#pragma once

#include <cstdint>

#include "core/nibble_pairs.h"
#include "cuda/index.cuh"
#include "cuda/launch.cuh"
#include "cuda/load_store.cuh"

namespace planq::cuda {

inline constexpr int kPairThreads = 256;

// Places is Lines or, for more than they count, Space: of vectors, or of packed bytes.
template <class Places>
struct PairArgs {
  const std::uint8_t* input;
  std::uint8_t* output;
  Places places;
  std::int64_t count, second, pairs;
  // Vectors alone: of the runs that they are cut from.
  std::int64_t run, code_step;
  bool moves;
  NibbleOrder order;

  // Bytes of a run from a place on, at most `count`, and how many of them have two codes.
  __device__ __forceinline__ std::int64_t left(const Offsets& at, std::int64_t most) const {
    const std::int64_t rest = run - at.at[NibblePairs::kRun];
    return rest < most ? rest : most;
  }
  __device__ __forceinline__ std::int64_t whole(const Offsets& at, std::int64_t count) const {
    return NibblePairs::whole(pairs, at.at[NibblePairs::kPosition], moves, count);
  }
  template <class Work>
  __device__ __forceinline__ bool is_full(const Offsets& at) const {
    return left(at, Work::kBytes) == Work::kBytes &&
           (Work::kTakesSingles || whole(at, Work::kBytes) == Work::kBytes);
  }
};

// Work::kVectors vectors a thread, all of them loaded before the first is stored. A vector that the
// end of a run cuts, or the end of the axis, is done byte by byte.
template <class Work>
__global__ void __launch_bounds__(kPairThreads)
    pair_vectors(const __grid_constant__ PairArgs<Lines> args) {
  const std::uint32_t first = blockIdx.x * (kPairThreads * Work::kVectors) + threadIdx.x;
  typename Work::Vector vectors[Work::kVectors];
  Offsets at[Work::kVectors];
  bool full[Work::kVectors], cut = false;
#pragma unroll
  for (int i = 0; i < Work::kVectors; ++i) {
    const std::uint32_t index = first + i * kPairThreads;
    full[i] = false;
    if (index >= args.count) continue;
    at[i] = args.places.offsets(index);
    full[i] = args.template is_full<Work>(at[i]);
    cut |= !full[i];
    if (full[i]) Work::load(args, at[i], vectors[i]);
  }
#pragma unroll
  for (int i = 0; i < Work::kVectors; ++i)
    if (full[i]) Work::store(args, at[i], vectors[i]);
  if (!cut) return;
#pragma unroll 1
  for (std::uint32_t index = first, i = 0; i < Work::kVectors && index < args.count;
       ++i, index += kPairThreads) {
    const Offsets place = args.places.offsets(index);
    if (args.template is_full<Work>(place)) continue;
    const std::int64_t bytes = args.left(place, Work::kBytes), whole = args.whole(place, bytes);
#pragma unroll 1
    for (std::int64_t j = 0; j < bytes; ++j)
      Work::byte(args, place.at[NibblePairs::kCodes] + j * args.code_step,
                 place.at[NibblePairs::kPacked] + j, j < whole);
  }
}

// A thread per packed byte.
template <class Work, class Places>
__global__ void __launch_bounds__(kPairThreads)
    pair_bytes(const __grid_constant__ PairArgs<Places> args) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kPairThreads + threadIdx.x;
  if (index >= args.count) return;
  const Offsets at = args.places.offsets(index);
  Work::byte(args, at.at[NibblePairs::kCodes], at.at[NibblePairs::kPacked],
             at.at[NibblePairs::kPosition] < args.pairs);
}

// One launch of the body that fits: Adjacent and Planes are the Works for vectors.
template <class Adjacent, class Planes>
class PairLaunch {
 public:
  static Status preload() {
    PLANQ_TRY(cuda::preload(pair_vectors<Adjacent>));
    PLANQ_TRY(cuda::preload(pair_vectors<Planes>));
    PLANQ_TRY((cuda::preload(pair_bytes<Adjacent, Lines>)));
    return cuda::preload(pair_bytes<Adjacent, Space>);
  }

  PairLaunch(const NibblePairs& pairs, const void* input, void* output, NibbleOrder order,
             void* stream)
      : pairs_(pairs), input_(input), output_(output), order_(order), stream_(stream) {}

  // `codes` and `packed` are input and output, or output and input.
  Status run(const void* codes, const void* packed) const {
    if (pairs_.bytes.size() == 0) return Status::success();
    if (pairs_.adjacent() && fits<Adjacent>(codes, packed)) return vectors<Adjacent>();
    const bool planes = pairs_.planes() && pairs_.second % kVectorBytes == 0;
    if (planes && fits<Planes>(codes, packed)) return vectors<Planes>();
    return pairs_.bytes.size() <= kMaxIndex ? bytes<Lines>() : bytes<Space>();
  }

 private:
  template <class Work>
  Space cut() const {
    Space space = pairs_.bytes;
    Axis& inner = space.axes[space.rank - 1];
    inner.extent = (inner.extent + Work::kBytes - 1) / Work::kBytes;
    for (std::int64_t& stride : inner.stride) stride *= Work::kBytes;
    inner.stride[NibblePairs::kRun] = Work::kBytes;
    return space;
  }
  // Whether every run begins where vectors of codes and of packed bytes begin.
  template <class Work>
  bool fits(const void* codes, const void* packed) const {
    const auto begins = [](const void* address, int bytes) {
      return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
    };
    bool result = begins(codes, kVectorBytes) && begins(packed, Work::kBytes) &&
                  cut<Work>().size() <= kMaxIndex;
    for (int i = 0; i + 1 < pairs_.bytes.rank; ++i) {
      const auto& stride = pairs_.bytes.axes[i].stride;
      result = result && stride[NibblePairs::kCodes] % kVectorBytes == 0 &&
               stride[NibblePairs::kPacked] % Work::kBytes == 0;
    }
    return result;
  }
  template <class Places>
  PairArgs<Places> args(const Space& space) const {
    PairArgs<Places> args{};
    args.input = static_cast<const std::uint8_t*>(input_);
    args.output = static_cast<std::uint8_t*>(output_);
    args.places = Places(space);
    args.count = space.size();
    args.second = pairs_.second;
    args.pairs = pairs_.pairs;
    args.run = pairs_.run().extent;
    args.code_step = pairs_.run().stride[NibblePairs::kCodes];
    args.moves = pairs_.run().stride[NibblePairs::kPosition] != 0;
    args.order = order_;
    return args;
  }
  template <class Work>
  Status vectors() const {
    const auto found = args<Lines>(cut<Work>());
    constexpr std::int64_t kPerBlock = kPairThreads * Work::kVectors;
    return launch(pair_vectors<Work>, {(found.count + kPerBlock - 1) / kPerBlock, kPairThreads},
                  found, stream_);
  }
  template <class Places>
  Status bytes() const {
    const auto found = args<Places>(pairs_.bytes);
    return launch(pair_bytes<Adjacent, Places>,
                  {(found.count + kPairThreads - 1) / kPairThreads, kPairThreads}, found, stream_);
  }

  const NibblePairs& pairs_;
  const void* input_;
  void* output_;
  NibbleOrder order_;
  void* stream_;
};

}  // namespace planq::cuda
