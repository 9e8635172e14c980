// Kernels for the index space of nibble_pairs.h, which packing and unpacking share. A template
// argument Op does the conversion, of a vector or of one packed byte; the kernels here find the
// places of all vectors or bytes. The kernel for vectors needs aligned operands, and the one for
// bytes takes everything else.
#pragma once

#include <cstdint>

#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "ops/packing/nibble_pairs.h"

namespace planq::cuda {

inline constexpr int kPairThreads = 256;

// What an Op needs to know of operands.
struct PairOperands {
  const std::uint8_t* input;
  std::uint8_t* output;
  std::int64_t second;  // from a first code to its second
  NibbleOrder order;
};

// Where the first code of a vector, or of a packed byte, is, and where its packed bytes are; `two`:
// there are second codes as well.
struct PairPlace {
  std::int64_t codes, packed;
  bool two;
};

// Lines of packed bytes as vectors, of which the first `full` of each line are whole.
struct PairVectorArgs {
  PairOperands operands;
  IndexSpace32 lines;
  Divider vectors;  // in a line
  std::uint32_t count, full;
  std::int64_t pairs;                   // lines from this position on have first codes only
  std::int64_t line_bytes, line_pairs;  // bytes of a line, and those that may have two codes
};

template <class Op>
__device__ __forceinline__ PairPlace place_of(const PairVectorArgs& args, std::uint32_t line,
                                              std::uint32_t vector) {
  const Offsets at = args.lines.offsets(line);
  const std::int64_t byte = std::int64_t{vector} * Op::kBytes;
  return {at.at[NibblePairs::kCodes] + byte * Op::kCodeStep, at.at[NibblePairs::kPacked] + byte,
          at.at[NibblePairs::kPosition] < args.pairs};
}

// Op::kVectors vectors a thread, all of them loaded before the first is stored. A vector that
// reaches beyond the end of a line, or beyond its second codes, is done byte by byte.
template <class Op>
__global__ void __launch_bounds__(kPairThreads)
    pair_vectors(const __grid_constant__ PairVectorArgs args) {
  const std::uint32_t first = blockIdx.x * (kPairThreads * Op::kVectors) + threadIdx.x;
  typename Op::Vector vectors[Op::kVectors];
  PairPlace places[Op::kVectors];
  bool full[Op::kVectors], cut = false;
#pragma unroll
  for (int i = 0; i < Op::kVectors; ++i) {
    const std::uint32_t index = first + i * kPairThreads;
    const std::uint32_t line = args.vectors.quotient(index);
    const std::uint32_t vector = index - line * args.vectors.divisor;
    full[i] = index < args.count && vector < args.full;
    cut |= index < args.count && vector >= args.full;
    if (!full[i]) continue;
    places[i] = place_of<Op>(args, line, vector);
    Op::load(args.operands, places[i], vectors[i]);
  }
#pragma unroll
  for (int i = 0; i < Op::kVectors; ++i)
    if (full[i]) Op::store(args.operands, places[i], vectors[i]);
  if (!cut) return;
#pragma unroll 1
  for (std::uint32_t i = 0; i < Op::kVectors; ++i) {
    const std::uint32_t index = first + i * kPairThreads, line = args.vectors.quotient(index);
    const std::uint32_t vector = index - line * args.vectors.divisor;
    if (index >= args.count || vector < args.full) continue;
    const PairPlace place = place_of<Op>(args, line, vector);
    const std::int64_t from = std::int64_t{vector} * Op::kBytes;
    const std::int64_t to = min(from + Op::kBytes, args.line_bytes);
#pragma unroll 1
    for (std::int64_t at = from; at < to; ++at)
      Op::byte(args.operands, {place.codes + (at - from) * Op::kCodeStep,
                               place.packed + (at - from), place.two && at < args.line_pairs});
  }
}

// Places: Lines or, for more bytes than its 32 bits can number, IndexSpace.
template <class Places>
struct PairByteArgs {
  PairOperands operands;
  Places places;
  std::int64_t count, pairs;
};

// A thread per packed byte.
template <class Op, class Places>
__global__ void __launch_bounds__(kPairThreads)
    pair_bytes(const __grid_constant__ PairByteArgs<Places> args) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kPairThreads + threadIdx.x;
  if (index >= args.count) return;
  const Offsets at = args.places.offsets(index);
  Op::byte(args.operands, {at.at[NibblePairs::kCodes], at.at[NibblePairs::kPacked],
                           at.at[NibblePairs::kPosition] < args.pairs});
}

// Launches the kernel that the operands allow. Adjacent and Planes: the Op for vectors whose codes
// are neighbours, or lie in planes.
template <class Adjacent, class Planes>
class PairLaunch {
 public:
  static Status preload() {
    PLANQ_TRY(cuda::preload(pair_vectors<Adjacent>));
    PLANQ_TRY(cuda::preload(pair_vectors<Planes>));
    PLANQ_TRY((cuda::preload(pair_bytes<Adjacent, IndexSpace32>)));
    return cuda::preload(pair_bytes<Adjacent, IndexSpace>);
  }

  PairLaunch(const NibblePairs& pairs, const void* input, void* output, NibbleOrder order,
             Bound& bound)
      : pairs_(pairs), input_(input), output_(output), order_(order), bound_(bound) {}

  // `codes` and `packed` are input and output, or output and input.
  Status run(const void* codes, const void* packed) const {
    if (pairs_.bytes.size() == 0) return Status::success();
    // A line with first codes only, such as the last one along an axis of odd length, is left to
    // Planes.
    const bool adjacent = pairs_.adjacent() && (pairs_.moves() || !pairs_.has_spare_nibble);
    if (adjacent && fits<Adjacent>(codes, packed)) return vectors<Adjacent>();
    const bool planes = pairs_.planes() && !pairs_.moves() && pairs_.second % kVectorBytes == 0;
    if (planes && fits<Planes>(codes, packed)) return vectors<Planes>();
    return pairs_.bytes.size() <= kMaxIndex ? bytes<IndexSpace32>() : bytes<IndexSpace>();
  }

 private:
  static constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

  IndexSpace line_space() const {
    IndexSpace space = pairs_.bytes;
    --space.rank;
    return space;
  }
  template <class Op>
  std::int64_t vectors_of_line() const {
    return ceil_div(pairs_.inner_axis().extent, Op::kBytes);
  }
  // Whether the codes and the packed bytes of every line begin at an address aligned for vectors.
  template <class Op>
  bool fits(const void* codes, const void* packed) const {
    const auto begins = [](const void* address, int bytes) {
      return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
    };
    const IndexSpace lines = line_space();
    bool result = begins(codes, kVectorBytes) && begins(packed, Op::kBytes) &&
                  lines.size() * vectors_of_line<Op>() <= kMaxIndex;
    for (int i = 0; i < lines.rank; ++i) {
      const auto& stride = lines.axes[i].stride;
      result = result && stride[NibblePairs::kCodes] % kVectorBytes == 0 &&
               stride[NibblePairs::kPacked] % Op::kBytes == 0;
    }
    return result;
  }
  PairOperands operands() const {
    return {static_cast<const std::uint8_t*>(input_), static_cast<std::uint8_t*>(output_),
            pairs_.second, order_};
  }
  template <class Op>
  Status vectors() const {
    PairVectorArgs args{};
    args.operands = operands();
    args.lines = IndexSpace32(line_space());
    args.vectors = Divider(static_cast<std::uint32_t>(vectors_of_line<Op>()));
    args.count = static_cast<std::uint32_t>(line_space().size()) * args.vectors.divisor;
    args.pairs = pairs_.pairs;
    args.line_bytes = pairs_.inner_axis().extent;
    args.line_pairs = pairs_.moves() ? pairs_.pairs : args.line_bytes;
    args.full = static_cast<std::uint32_t>(args.line_pairs / Op::kBytes);
    return launch(pair_vectors<Op>,
                  {ceil_div(args.count, kPairThreads * Op::kVectors), kPairThreads}, args, bound_);
  }
  template <class Places>
  Status bytes() const {
    const PairByteArgs<Places> args{operands(), Places(pairs_.bytes), pairs_.bytes.size(),
                                    pairs_.pairs};
    return launch(pair_bytes<Adjacent, Places>, {ceil_div(args.count, kPairThreads), kPairThreads},
                  args, bound_);
  }

  const NibblePairs& pairs_;
  const void* input_;
  void* output_;
  NibbleOrder order_;
  Bound& bound_;
};

}  // namespace planq::cuda
