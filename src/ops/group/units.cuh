// Groups that are read twice, element by element: once for their scales, once for their codes. A
// unit of one or two groups, which shares no byte with others, is a team's.
//
// Args has elements, size, groups, groups_of_unit, lanes, spec, parameters, output, output_places.
#pragma once

#include "ops/group/group.cuh"

namespace planq::cuda {

// The scale of a group, of which value(i) is element i; it is stored at `place`. The whole team
// calls this, of a group that does not exist too. T: the type of the elements.
template <class T, class Args, class Value>
__device__ __forceinline__ math::GroupScale measure_group(const Args& args, std::int64_t group,
                                                          std::int64_t place, int lane,
                                                          const Value& value) {
  const bool exists = group < args.groups;
  math::GroupRange range;
  if (exists) {
    const BlockSpan span = block_span(group, args.size, args.elements);
    for (std::int64_t i = span.first + lane; i < span.last; i += args.lanes) range.add(value(i));
  }
  const auto scale = math::measured_scale<T>(args.spec, team_range(range, args.lanes));
  if (exists && lane == 0) args.parameters.store(args.spec.form, place, scale);
  return scale;
}

// Codes of all units. Of a group: place_of(group), and scale_of(group, lane), which the whole team
// calls. Of element i, which goes `moved` elements further: code_of(i, moved, scale).
template <bool kNibble, class Args, class PlaceOf, class ScaleOf, class CodeOf>
__device__ __forceinline__ void encode_by_units(const Args& args, const PlaceOf& place_of,
                                                const ScaleOf& scale_of, const CodeOf& code_of) {
  constexpr int kPerByte = kNibble ? 2 : 1;
  const int lane = static_cast<int>(threadIdx.x) & (args.lanes - 1);
  const int teams = static_cast<int>(blockDim.x) / args.lanes;
  // All teams of a block go round equally often, since they meet in team_range().
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * teams;
       first * args.groups_of_unit < args.groups;
       first += static_cast<std::int64_t>(gridDim.x) * teams) {
    const std::int64_t group =
        (first + static_cast<int>(threadIdx.x) / args.lanes) * args.groups_of_unit;
    const math::GroupScale one = scale_of(group, lane);
    math::GroupScale other = one;
    if (args.groups_of_unit > 1) other = scale_of(group + 1, lane);
    if (group >= args.groups) continue;
    // Groups that move are units of their own.
    const std::int64_t moved = (place_of(group) - group) * args.size;
    const std::int64_t start = group * args.size, second = start + args.size;
    const BlockSpan span = block_span(group + args.groups_of_unit - 1, args.size, args.elements);
    const std::int64_t end = min(max(span.last, start), args.elements);
    for (std::int64_t i = start + lane * kPerByte; i < end; i += args.lanes * kPerByte) {
      std::uint32_t codes = 0;
      for (int j = 0; j < kPerByte; ++j) {
        if (i + j >= end) continue;
        const int code = code_of(i + j, moved, i + j < second ? one : other);
        codes |= static_cast<std::uint32_t>(code & (kNibble ? 15 : 255)) << code_shift<kNibble>(j);
      }
      const std::int64_t at = i + moved;
      store_once(args.output + (kNibble ? at / 2 : args.output_places[at]),
                 static_cast<std::uint8_t>(codes));
    }
  }
}

// Sets the lanes of a team.
template <class Args>
Grid unit_grid(Args& args, int multiprocessors, std::int64_t most_lanes = kMostLanes) {
  const std::int64_t lanes = std::min(lanes_for(std::min(args.size, args.elements)), most_lanes);
  const unsigned threads = threads_for(lanes);
  args.lanes = static_cast<int>(lanes);
  const std::int64_t units = ceil_div(args.groups, args.groups_of_unit);
  const std::int64_t most = std::int64_t{multiprocessors} * (2048 / threads);
  return {std::min(ceil_div(units, threads / lanes), most), dim3(threads)};
}

}  // namespace planq::cuda
