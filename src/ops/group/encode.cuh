// Elements to codes of groups on CUDA: groups of whole vectors stay in registers between their
// measure and their codes, most of them in those of encode_warps.cuh; all others are read twice,
// element by element.
#pragma once

#include "ops/group/encode_warps.cuh"
#include "ops/group/group_cuda.h"
#include "ops/group/units.cuh"

namespace planq::cuda {

template <class T>
struct GroupEncodeArgs {
  const T* input;
  std::uint8_t* output;
  GroupMemory<T> parameters;
  ElementPlaces input_places, output_places;
  GroupOrder order;
  GroupPlaces places;  // the same of groups that stay resident
  std::int64_t elements, size, groups;
  int groups_of_unit, lanes;
  math::GroupSpec spec;
  bool measured;
};

// One group a team, kVectors vectors of it in each thread.
template <class T, bool kIntx, bool kNibble, int kVectors>
__global__ void __launch_bounds__(kMostLanes)
    encode_resident(const __grid_constant__ GroupEncodeArgs<T> args) {
  constexpr int kPer = kGroupVector<T>;
  const int lane = static_cast<int>(threadIdx.x) & (args.lanes - 1);
  const std::int64_t group =
      static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / args.lanes) + threadIdx.x / args.lanes;
  const int vectors = group < args.groups ? static_cast<int>(args.size) / kPer : 0;
  const std::int64_t place = args.places[static_cast<std::uint32_t>(group)];
  const T* from = args.input + group * args.size;
  uint4 held[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (const int at = i * args.lanes + lane; at < vectors) held[i] = load_once(from + at * kPer);
  math::GroupScale scale;
  if (args.measured) {
    math::GroupRange range;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (i * args.lanes + lane >= vectors) continue;
      float values[kPer];
      widen_group_vector<T>(held[i], values);
#pragma unroll
      for (int j = 0; j < kPer; ++j) range.add(values[j]);
    }
    scale = math::measured_scale<T>(args.spec, team_range(range, args.lanes));
    if (lane == 0 && vectors > 0) store_pair(args.parameters, args.spec.form, place, scale);
  } else if (vectors > 0) {
    scale = math::given_scale(args.spec, load_pair(args.parameters, args.spec.form, place));
  }
  using Codes = GroupWord<T, kNibble>;
  auto* to = reinterpret_cast<Codes*>(args.output) + place * (args.size / kPer);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int at = i * args.lanes + lane;
    if (at >= vectors) continue;
    float values[kPer];
    widen_group_vector<T>(held[i], values);
    store_once(to + at, encode_group_vector<T, kIntx, kNibble>(scale, values));
  }
}

template <class T, bool kIntx, bool kNibble>
__global__ void __launch_bounds__(kMostLanes)
    encode_units(const __grid_constant__ GroupEncodeArgs<T> args) {
  const auto element = [&](std::int64_t i) {
    return math::widened(args.input[args.input_places[i]]);
  };
  const auto place_of = [&](std::int64_t group) { return args.order.place(group); };
  const auto scale_of = [&](std::int64_t group, int lane) {
    if (args.measured) return measure_group<T>(args, group, place_of(group), lane, element);
    if (group >= args.groups) return math::lost_group();
    return math::given_scale(args.spec, args.parameters.load(args.spec.form, place_of(group)));
  };
  encode_by_units<kNibble>(
      args, place_of, scale_of, [&](std::int64_t i, std::int64_t, const math::GroupScale& scale) {
        return static_cast<int>(math::group_code<T, kIntx>(args.spec, scale, element(i)));
      });
}

// Vectors of a thread: few where a warp can then hold the group, else many.
inline constexpr int kFewVectors = 2, kManyVectors = 8;

template <class T, bool kNibble>
bool stays_resident(const GroupEncodeArgs<T>& args) {
  return args.size % kGroupVector<T> == 0 && args.elements % args.size == 0 &&
         args.size / kGroupVector<T> <= std::int64_t{kMostLanes} * kManyVectors &&
         args.groups < (std::int64_t{1} << 31) && args.input_places.consecutive() &&
         args.output_places.consecutive() && aligned_to(args.input, kVectorBytes) &&
         aligned_to(args.output, sizeof(GroupWord<T, kNibble>));
}

// Whether encode_warps() takes them: a set of a warp has to have a lane for each set.
template <class T>
bool fits_warps(const GroupEncodeArgs<T>& args) {
  const std::int64_t vectors = args.size / kGroupVector<T>;
  return std::has_single_bit(static_cast<std::uint64_t>(vectors)) && vectors >= kWarpSets &&
         vectors <= kTeamThreads * kWarpSets &&
         args.elements / kGroupVector<T> < kMaxIndex - kTeamThreads * kWarpSets;
}

template <class T, bool kIntx, bool kNibble>
Status launch_warps(const GroupEncodeArgs<T>& args, Bound& bound) {
  const auto of_group = static_cast<std::uint32_t>(args.size / kGroupVector<T>);
  const std::uint32_t lanes = std::min<std::uint32_t>(of_group, kWarp);
  const std::uint32_t sets = std::min<std::uint32_t>(of_group / lanes, kWarpSets);
  GroupWarpArgs<T> warps{};
  warps.input = args.input;
  warps.output = args.output;
  warps.parameters = args.parameters;
  warps.places = args.places;
  warps.vectors = static_cast<std::uint32_t>(args.elements / kGroupVector<T>);
  warps.vectors_log2 = std::countr_zero(of_group);
  warps.lanes_log2 = std::countr_zero(lanes);
  warps.sets = static_cast<int>(sets);
  warps.warps = static_cast<int>(of_group / (lanes * sets));
  warps.spec = args.spec;
  warps.measured = args.measured;
  return launch(encode_warps<T, kIntx, kNibble>,
                Grid{ceil_div(warps.vectors, kTeamThreads * kWarpSets), dim3(kTeamThreads)}, warps,
                bound);
}

template <class T, bool kIntx, bool kNibble>
Status launch_groups(GroupEncodeArgs<T> args, int multiprocessors, Bound& bound) {
  if (args.elements == 0) return Status::success();
  if (stays_resident<T, kNibble>(args)) {
    args.places = GroupPlaces(args.order);
    if (fits_warps(args)) return launch_warps<T, kIntx, kNibble>(args, bound);
    const std::int64_t vectors = args.size / kGroupVector<T>;
    const bool few = vectors <= kWarp * kFewVectors;
    const std::int64_t lanes = lanes_for(ceil_div(vectors, few ? kFewVectors : kManyVectors));
    const unsigned threads = threads_for(lanes);
    args.lanes = static_cast<int>(lanes);
    const Grid grid{ceil_div(args.groups, threads / lanes), dim3(threads)};
    return few ? launch(encode_resident<T, kIntx, kNibble, kFewVectors>, grid, args, bound)
               : launch(encode_resident<T, kIntx, kNibble, kManyVectors>, grid, args, bound);
  }
  const Grid grid = unit_grid(args, multiprocessors);
  return launch(encode_units<T, kIntx, kNibble>, grid, args, bound);
}

template <class T, bool kIntx, bool kNibble>
Status preload_form() {
  PLANQ_TRY((preload(encode_warps<T, kIntx, kNibble>)));
  PLANQ_TRY((preload(encode_resident<T, kIntx, kNibble, kFewVectors>)));
  PLANQ_TRY((preload(encode_resident<T, kIntx, kNibble, kManyVectors>)));
  return preload(encode_units<T, kIntx, kNibble>);
}

template <class T>
Status preload_groups(const Grouping& grouping) {
  if (grouping.is_four_bit())
    return grouping.is_intx() ? preload_form<T, true, true>() : preload_form<T, false, true>();
  return grouping.is_intx() ? preload_form<T, true, false>() : preload_form<T, false, false>();
}

template <class T>
Status encode_groups(const GroupEncoding& encoding, const OperandView& input,
                     const OperandView& output, const GroupMemory<T>& parameters,
                     int multiprocessors, Bound& bound) {
  const Grouping& grouping = encoding.grouping;
  GroupEncodeArgs<T> args{};
  args.input = static_cast<const T*>(input.data);
  args.output = static_cast<std::uint8_t*>(output.data);
  args.parameters = parameters;
  args.input_places = {grouping.shape, input};
  if (!grouping.is_four_bit()) args.output_places = {encoding.output_shape, output};
  args.order = encoding.order;
  args.elements = grouping.elements;
  args.size = grouping.size;
  args.groups = grouping.groups;
  args.groups_of_unit = static_cast<int>(grouping.groups_of_unit());
  args.spec = grouping.spec;
  args.measured = encoding.measured;
  if (grouping.is_four_bit())
    return grouping.is_intx() ? launch_groups<T, true, true>(args, multiprocessors, bound)
                              : launch_groups<T, false, true>(args, multiprocessors, bound);
  return grouping.is_intx() ? launch_groups<T, true, false>(args, multiprocessors, bound)
                            : launch_groups<T, false, false>(args, multiprocessors, bound);
}

}  // namespace planq::cuda

// What a file of one element type instantiates.
#define PLANQ_GROUP_ENCODING(T)                                                                    \
  template ::planq::Status planq::cuda::preload_groups<T>(const Grouping&);                        \
  template ::planq::Status planq::cuda::encode_groups<T>(const GroupEncoding&, const OperandView&, \
                                                         const OperandView&,                       \
                                                         const GroupMemory<T>&, int, Bound&)
