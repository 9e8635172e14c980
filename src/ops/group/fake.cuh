// Fake quantization of flat groups on CUDA, by DeepSpeed's convention: groups of whole vectors stay
// in registers between their measure and their values. All others are read twice, and long ones by
// many blocks: one launch measures their parts, the next computes them.
#pragma once

#include "core/scalar.h"
#include "cuda/launch.cuh"
#include "math/philox.h"
#include "ops/group/fake.h"
#include "ops/group/group.cuh"

namespace planq::cuda {

inline constexpr int kFakeVectors = 4;  // of a thread, at a time

// What a launch does with the parts of groups.
enum class FakeStep : std::uint8_t { Whole, Measure, Compute };

template <class T>
struct FakeArgs {
  const T* input;
  T* output;
  math::GroupRange* ranges;  // of parts, group by group
  ElementPlaces input_places, output_places;
  FakeGroups groups;
  math::FakeSpec spec;
  IntegerScalar seed, offset;
  int lanes;
  FakeStep step;
  bool vectors;  // groups begin at vectors
};

// The random numbers of elements. `first` is a multiple of 4.
template <bool kStochastic>
struct FakeRandom {
  math::PhiloxKeys keys;
  std::uint64_t offset;

  template <class Args>
  __device__ __forceinline__ explicit FakeRandom(const Args& args) {
    if constexpr (kStochastic) {
      keys = math::PhiloxKeys(static_cast<std::uint64_t>(args.seed.get()));
      offset = static_cast<std::uint64_t>(args.offset.get());
    }
  }
  template <int kCount>
  __device__ __forceinline__ void fill(std::int64_t first, float (&uniforms)[kCount]) const {
    if constexpr (kStochastic) {
#pragma unroll
      for (int i = 0; i < kCount; i += 4) {
        const auto words = math::philox(keys, offset + static_cast<std::uint64_t>(first + i) / 4);
#pragma unroll
        for (int j = 0; j < 4; ++j) uniforms[i + j] = math::uniform_of<float>(words.word[j]);
      }
    }
  }
  __device__ __forceinline__ float single(std::int64_t at) const {
    if constexpr (!kStochastic) return 0.0f;
    const auto index = static_cast<std::uint64_t>(at);
    return math::uniform_of<float>(math::word_of(math::philox(keys, offset + index / 4), index));
  }
};

template <bool kStochastic>
__device__ __forceinline__ float fake_element(const math::FakeSpec& spec,
                                              const math::FakeScale& scale, float x,
                                              float uniform) {
  return spec.symmetric ? math::faked<true, kStochastic>(spec, scale, x, uniform)
                        : math::faked<false, kStochastic>(spec, scale, x, uniform);
}

template <class T>
__device__ __forceinline__ void add_vector(const uint4& vector, math::GroupRange& range) {
  float values[kGroupVector<T>];
  widen_group_vector<T>(vector, values);
#pragma unroll
  for (int j = 0; j < kGroupVector<T>; ++j) range.add(values[j]);
}

template <class T, bool kStochastic>
__device__ __forceinline__ uint4 fake_vector(const math::FakeSpec& spec,
                                             const math::FakeScale& scale, const uint4& vector,
                                             const FakeRandom<kStochastic>& random,
                                             std::int64_t first) {
  constexpr int kPer = kGroupVector<T>;
  float values[kPer], uniforms[kPer] = {};
  widen_group_vector<T>(vector, values);
  random.fill(first, uniforms);
  T each[kPer];
#pragma unroll
  for (int j = 0; j < kPer; ++j)
    each[j] = math::narrowed<T>(fake_element<kStochastic>(spec, scale, values[j], uniforms[j]));
  uint4 result;
  memcpy(&result, each, sizeof result);
  return result;
}

// One group a team.
template <class T, bool kStochastic>
__global__ void __launch_bounds__(kMostLanes)
    fake_resident(const __grid_constant__ FakeArgs<T> args) {
  constexpr int kPer = kGroupVector<T>;
  const int lane = static_cast<int>(threadIdx.x) & (args.lanes - 1);
  const std::int64_t group =
      static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / args.lanes) + threadIdx.x / args.lanes;
  const std::int64_t start = group * args.groups.size;
  const int vectors = group < args.groups.groups ? static_cast<int>(args.groups.size) / kPer : 0;
  uint4 held[kFakeVectors];
#pragma unroll
  for (int i = 0; i < kFakeVectors; ++i)
    if (const int at = i * args.lanes + lane; at < vectors)
      held[i] = load_once(args.input + start + at * kPer);
  math::GroupRange range;
#pragma unroll
  for (int i = 0; i < kFakeVectors; ++i)
    if (i * args.lanes + lane < vectors) add_vector<T>(held[i], range);
  const auto scale = math::measured_fake(args.spec, team_range(range, args.lanes));
  const FakeRandom<kStochastic> random(args);
#pragma unroll
  for (int i = 0; i < kFakeVectors; ++i) {
    const int at = i * args.lanes + lane;
    if (at >= vectors) continue;
    const std::int64_t first = start + at * kPer;
    store_vector(args.output + first,
                 fake_vector<T, kStochastic>(args.spec, scale, held[i], random, first));
  }
}

// The elements of a span by the lanes of a team: whole vectors, a few of which are on their way
// together, then one by one.
template <class T, class OnVector, class OnElement>
__device__ __forceinline__ void walk_span(const FakeArgs<T>& args, const BlockSpan& span, int lane,
                                          const OnVector& on_vector, const OnElement& on_element) {
  constexpr int kPer = kGroupVector<T>;
  const std::int64_t whole =
      args.vectors ? span.last - (span.last - span.first) % kPer : span.first;
  const int next = args.lanes * kPer;
  for (std::int64_t i = span.first + lane * kPer; i < whole; i += kFakeVectors * next) {
    uint4 held[kFakeVectors];
#pragma unroll
    for (int j = 0; j < kFakeVectors; ++j)
      if (i + j * next < whole)
        held[j] = *reinterpret_cast<const uint4*>(args.input + i + j * next);
#pragma unroll
    for (int j = 0; j < kFakeVectors; ++j)
      if (i + j * next < whole) on_vector(i + j * next, held[j]);
  }
  for (std::int64_t i = whole + lane; i < span.last; i += args.lanes)
    on_element(i, math::widened(args.input[args.input_places[i]]));
}

// A part of a group for each team. What it writes may lie where it reads: every element is read
// before its group is written, and once more by the thread that writes it.
template <class T, bool kStochastic>
__global__ void __launch_bounds__(kTeamThreads)
    fake_parts(const __grid_constant__ FakeArgs<T> args) {
  const int lane = static_cast<int>(threadIdx.x) & (args.lanes - 1);
  const int teams = static_cast<int>(blockDim.x) / args.lanes;
  const std::int64_t units = args.groups.groups * args.groups.parts;
  const FakeRandom<kStochastic> random(args);
  // All teams of a block go round equally often, since they meet in team_range().
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * teams; first < units;
       first += static_cast<std::int64_t>(gridDim.x) * teams) {
    const std::int64_t unit = first + static_cast<int>(threadIdx.x) / args.lanes;
    const bool exists = unit < units;
    const std::int64_t group = exists ? unit / args.groups.parts : 0;
    const std::int64_t kept = group * args.groups.parts;
    const BlockSpan span = exists ? args.groups.part_span(group, unit - kept) : BlockSpan{0, 0};
    math::GroupRange range;
    if (args.step == FakeStep::Compute) {
      for (std::int64_t i = lane; exists && i < args.groups.parts; i += args.lanes)
        range.add(args.ranges[kept + i]);
    } else {
      walk_span(
          args, span, lane,
          [&](std::int64_t, const uint4& vector) { add_vector<T>(vector, range); },
          [&](std::int64_t, float x) { range.add(x); });
    }
    range = team_range(range, args.lanes);
    if (args.step == FakeStep::Measure) {
      if (exists && lane == 0) args.ranges[unit] = range;
      continue;
    }
    const auto scale = math::measured_fake(args.spec, range);
    walk_span(
        args, span, lane,
        [&](std::int64_t i, const uint4& vector) {
          *reinterpret_cast<uint4*>(args.output + i) =
              fake_vector<T, kStochastic>(args.spec, scale, vector, random, i);
        },
        [&](std::int64_t i, float x) {
          args.output[args.output_places[i]] =
              math::narrowed<T>(fake_element<kStochastic>(args.spec, scale, x, random.single(i)));
        });
  }
}

template <class T>
bool in_vectors(const FakeArgs<T>& args) {
  return args.groups.size % kGroupVector<T> == 0 && args.input_places.consecutive() &&
         args.output_places.consecutive() && aligned_to(args.input, kVectorBytes) &&
         aligned_to(args.output, kVectorBytes);
}
template <class T>
bool stays_in_registers(const FakeArgs<T>& args) {
  return args.vectors && args.groups.elements % args.groups.size == 0 &&
         args.groups.size / kGroupVector<T> <= std::int64_t{kMostLanes} * kFakeVectors &&
         args.groups.groups < (std::int64_t{1} << 31);
}

template <class T, bool kStochastic>
Status launch_resident(FakeArgs<T> args, Bound& bound) {
  const std::int64_t vectors = args.groups.size / kGroupVector<T>;
  // A warp takes neighbours as far as it can; more lanes only for what it does not hold.
  const bool fits_warp = vectors <= kWarp * kFakeVectors;
  const std::int64_t lanes = fits_warp
                                 ? std::min<std::int64_t>(power_of_two(ceil_div(vectors, 2)), kWarp)
                                 : power_of_two(ceil_div(vectors, kFakeVectors));
  const unsigned threads = threads_for(lanes);
  args.lanes = static_cast<int>(lanes);
  const Grid grid{ceil_div(args.groups.groups, threads / lanes), dim3(threads)};
  return launch(fake_resident<T, kStochastic>, grid, args, bound);
}

template <class T, bool kStochastic>
Status launch_parts(FakeArgs<T> args, int multiprocessors, Bound& bound) {
  const FakeGroups& groups = args.groups;
  const std::int64_t longest = std::min({groups.size, groups.elements, groups.part});
  const std::int64_t turns = ceil_div(longest, args.vectors ? kGroupVector<T> : 1);
  const std::int64_t lanes = std::min<std::int64_t>(power_of_two(turns), kTeamThreads);
  const unsigned threads = threads_for(lanes);
  args.lanes = static_cast<int>(lanes);
  const std::int64_t most = std::int64_t{multiprocessors} * (2048 / threads);
  const std::int64_t units = groups.groups * groups.parts;
  const Grid grid{std::min(ceil_div(units, threads / lanes), most), dim3(threads)};
  const auto launch_step = [&](FakeStep step) {
    args.step = step;
    return launch(fake_parts<T, kStochastic>, grid, args, bound);
  };
  if (groups.parts == 1) return launch_step(FakeStep::Whole);
  PLANQ_TRY(launch_step(FakeStep::Measure));
  return launch_step(FakeStep::Compute);
}

template <class T, bool kStochastic>
Status preload_fake() {
  PLANQ_TRY((preload(fake_resident<T, kStochastic>)));
  return preload(fake_parts<T, kStochastic>);
}

template <class T, bool kStochastic>
Status launch_fake(FakeArgs<T> args, int multiprocessors, Bound& bound) {
  if (args.groups.elements == 0) return Status::success();
  args.vectors = in_vectors(args);
  if (stays_in_registers(args)) return launch_resident<T, kStochastic>(args, bound);
  return launch_parts<T, kStochastic>(args, multiprocessors, bound);
}

}  // namespace planq::cuda
