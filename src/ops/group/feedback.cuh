// Error feedback on CUDA: values to codes of groups, whichever operator makes the values, and what
// the codes lose to errors. Groups of whole vectors stay in registers between their measure and
// their codes; all others are read twice, element by element.
//
// Source: has kPer values of a vector, which vector() makes, or element() one by one.
#pragma once

#include "ops/group/units.cuh"

namespace planq::cuda {

// Values that a thread holds in registers, with their errors, and the most threads of such a team.
inline constexpr int kHeld = 32, kHeldLanes = 512;

template <class Source>
struct FeedbackArgs {
  Source source;
  std::uint8_t* output;
  GroupMemory<float> parameters;
  ElementPlaces output_places;
  GroupOrder order;
  GroupFeedback feedback;
  std::int64_t elements, size, groups;
  int groups_of_unit, lanes;
  math::GroupSpec spec;
};

// --- Errors -------------------------------------------------------------------------------------

// float16 errors of a vector of values, which may be fewer than a vector of them.
template <int kPer>
__device__ __forceinline__ void load_halves(const math::Half* from, math::Half (&halves)[kPer]) {
  if constexpr (kPer * sizeof(math::Half) < kVectorBytes) {
    const auto word = load_single(reinterpret_cast<const Word<2 * kPer>*>(from));
    memcpy(halves, &word, sizeof halves);
  } else {
#pragma unroll
    for (int i = 0; i < kPer; i += 8) {
      const uint4 vector = load_once(from + i);
      memcpy(halves + i, &vector, sizeof vector);
    }
  }
}
template <int kPer>
__device__ __forceinline__ void store_halves(math::Half* to, const math::Half (&halves)[kPer]) {
  if constexpr (kPer * sizeof(math::Half) < kVectorBytes) {
    Word<2 * kPer> word;
    memcpy(&word, halves, sizeof word);
    store_once(reinterpret_cast<Word<2 * kPer>*>(to), word);
  } else {
#pragma unroll
    for (int i = 0; i < kPer; i += 8) {
      uint4 vector;
      memcpy(&vector, halves + i, sizeof vector);
      store_vector(to + i, vector);
    }
  }
}

template <int kPer>
__device__ __forceinline__ void load_errors(const GroupFeedback& feedback, std::int64_t first,
                                            float (&errors)[kPer]) {
  if (feedback.is_half) {
    math::Half halves[kPer];
    load_halves(static_cast<const math::Half*>(feedback.errors) + first, halves);
#pragma unroll
    for (int j = 0; j < kPer; ++j) errors[j] = math::widened(halves[j]);
    return;
  }
  const float* from = static_cast<const float*>(feedback.errors) + first;
#pragma unroll
  for (int i = 0; i < kPer; i += 4) {
    const uint4 vector = load_once(from + i);
    memcpy(errors + i, &vector, sizeof vector);
  }
}
template <int kPer>
__device__ __forceinline__ void store_errors(const GroupFeedback& feedback, std::int64_t first,
                                             const float (&errors)[kPer]) {
  if (feedback.is_half) {
    math::Half halves[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) halves[j] = math::narrowed<math::Half>(errors[j]);
    store_halves(static_cast<math::Half*>(feedback.errors) + first, halves);
    return;
  }
  float* to = static_cast<float*>(feedback.errors) + first;
#pragma unroll
  for (int i = 0; i < kPer; i += 4) {
    float each[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) each[j] = math::narrowed<float>(errors[i + j]);
    uint4 vector;
    memcpy(&vector, each, sizeof vector);
    store_vector(to + i, vector);
  }
}

__device__ __forceinline__ float load_error(const GroupFeedback& feedback, std::int64_t place) {
  if (!feedback.is_half) return static_cast<const float*>(feedback.errors)[place];
  return math::widened(static_cast<const math::Half*>(feedback.errors)[place]);
}
__device__ __forceinline__ void store_error(const GroupFeedback& feedback, std::int64_t place,
                                            float error) {
  if (feedback.is_half)
    static_cast<math::Half*>(feedback.errors)[place] = math::narrowed<math::Half>(error);
  else
    static_cast<float*>(feedback.errors)[place] = math::narrowed<float>(error);
}

__device__ __forceinline__ float wanted_value(const GroupFeedback& feedback, float x, float error) {
  return feedback.sums_half ? math::with_error<true>(x, error) : math::with_error<false>(x, error);
}

// The code of a value; its error becomes that of the next call.
__device__ __forceinline__ int code_with_error(const GroupFeedback& feedback,
                                               const math::GroupSpec& spec,
                                               const math::GroupScale& scale, float wanted,
                                               float& error) {
  const auto code = static_cast<int>(math::group_code<float, false>(spec, scale, wanted));
  const float decoded =
      math::group_value<float>(spec.form, {scale.stored, scale.offset}, static_cast<float>(code));
  error = feedback.sums_half ? math::error_after<true>(feedback.shares, error, wanted, decoded)
                             : math::error_after<false>(feedback.shares, error, wanted, decoded);
  return code;
}

// --- Kernels ------------------------------------------------------------------------------------

// How many codes are stored at a time.
template <int kPer>
inline constexpr int kWordful = kPer < 8 ? kPer : 8;

// Stores the codes of `wanted`. The errors become those of the next step, in place.
template <bool kNibble, int kPer>
__device__ __forceinline__ void store_codes_with_errors(
    const GroupFeedback& feedback, const math::GroupSpec& spec, const math::GroupScale& scale,
    std::uint8_t* output, const float (&wanted)[kPer], float (&errors)[kPer]) {
  constexpr int kCodes = kWordful<kPer>;
  using Codes = Word<kCodes / (kNibble ? 2 : 1)>;
#pragma unroll
  for (int i = 0; i < kPer; i += kCodes) {
    Codes word = 0;
#pragma unroll
    for (int j = 0; j < kCodes; ++j) {
      const int code = code_with_error(feedback, spec, scale, wanted[i + j], errors[i + j]);
      word |= static_cast<Codes>(static_cast<Codes>(code & (kNibble ? 15 : 255))
                                 << code_shift<kNibble>(j));
    }
    store_once(reinterpret_cast<Codes*>(output) + i / kCodes, word);
  }
}

// One group a team, kHeld values of it in each thread.
template <class Source, bool kNibble>
__global__ void __launch_bounds__(kHeldLanes)
    encode_with_errors_resident(const __grid_constant__ FeedbackArgs<Source> args) {
  constexpr int kPer = Source::kPer, kVectors = kHeld / kPer;
  const int lane = static_cast<int>(threadIdx.x) & (args.lanes - 1);
  const std::int64_t group =
      static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / args.lanes) + threadIdx.x / args.lanes;
  const int vectors = group < args.groups ? static_cast<int>(args.size) / kPer : 0;
  const std::int64_t place = args.order.place(group);
  const std::int64_t from = group * args.size, to = place * args.size;
  float wanted[kVectors][kPer], errors[kVectors][kPer];
  math::GroupRange range;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int at = (i * args.lanes + lane) * kPer;
    if (at >= vectors * kPer) continue;
    load_errors(args.feedback, to + at, errors[i]);
    args.source.vector(from + at, wanted[i]);
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      wanted[i][j] = wanted_value(args.feedback, wanted[i][j], errors[i][j]);
      range.add(wanted[i][j]);
    }
  }
  const auto scale = math::measured_scale<float>(args.spec, team_range(range, args.lanes));
  if (lane == 0 && vectors > 0) args.parameters.store(args.spec.form, place, scale);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int at = (i * args.lanes + lane) * kPer;
    if (at >= vectors * kPer) continue;
    std::uint8_t* codes = args.output + (to + at) / (kNibble ? 2 : 1);
    store_codes_with_errors<kNibble>(args.feedback, args.spec, scale, codes, wanted[i], errors[i]);
    store_errors(args.feedback, to + at, errors[i]);
  }
}

template <class Source>
__device__ __forceinline__ float wanted_element(const FeedbackArgs<Source>& args, std::int64_t i,
                                                float error) {
  return wanted_value(args.feedback, args.source.element(i), error);
}

// Nobody changes an error before the whole team has measured: team_range() waits for it.
template <class Source, bool kNibble>
__global__ void __launch_bounds__(kHeldLanes)
    encode_with_errors_units(const __grid_constant__ FeedbackArgs<Source> args) {
  const auto place_of = [&](std::int64_t group) { return args.order.place(group); };
  const auto scale_of = [&](std::int64_t group, int lane) {
    const std::int64_t place = place_of(group), moved = (place - group) * args.size;
    return measure_group<float>(args, group, place, lane, [&](std::int64_t i) {
      return wanted_element(args, i, load_error(args.feedback, i + moved));
    });
  };
  encode_by_units<kNibble>(args, place_of, scale_of,
                           [&](std::int64_t i, std::int64_t moved, const math::GroupScale& scale) {
                             float error = load_error(args.feedback, i + moved);
                             const float wanted = wanted_element(args, i, error);
                             const int code =
                                 code_with_error(args.feedback, args.spec, scale, wanted, error);
                             store_error(args.feedback, i + moved, error);
                             return code;
                           });
}

// --- Launches -----------------------------------------------------------------------------------

template <class Source, bool kNibble>
bool stays_with_errors(const FeedbackArgs<Source>& args) {
  constexpr int kWordBytes = kWordful<Source::kPer> / (kNibble ? 2 : 1);
  return args.size % Source::kPer == 0 && args.elements % args.size == 0 &&
         args.size <= std::int64_t{kHeldLanes} * kHeld && args.groups < (std::int64_t{1} << 31) &&
         args.source.has_vectors(args.elements) && args.output_places.consecutive() &&
         aligned_to(args.output, kWordBytes) && aligned_to(args.feedback.errors, kVectorBytes);
}

// What follows from how groups are cut, and where they go.
template <class Source>
FeedbackArgs<Source> feedback_args(const GroupEncoding& encoding, const OperandView& output,
                                   const OperandView& parameters) {
  const Grouping& grouping = encoding.grouping;
  FeedbackArgs<Source> args{};
  args.output = static_cast<std::uint8_t*>(output.data);
  args.parameters = {parameters, {}, {}};
  if (!grouping.is_four_bit()) args.output_places = {encoding.output_shape, output};
  args.order = encoding.order;
  args.feedback = encoding.feedback;
  args.elements = grouping.elements;
  args.size = grouping.size;
  args.groups = grouping.groups;
  args.groups_of_unit = static_cast<int>(grouping.groups_of_unit());
  args.spec = grouping.spec;
  return args;
}

template <bool kNibble, class Source>
Status launch_with_errors(FeedbackArgs<Source> args, int multiprocessors, Bound& bound) {
  if (args.elements == 0) return Status::success();
  if (!stays_with_errors<Source, kNibble>(args)) {
    const Grid grid = unit_grid(args, multiprocessors, kHeldLanes);
    return launch(encode_with_errors_units<Source, kNibble>, grid, args, bound);
  }
  const std::int64_t lanes =
      std::min<std::int64_t>(lanes_for(ceil_div(args.size, kHeld)), kHeldLanes);
  const unsigned threads = threads_for(lanes);
  args.lanes = static_cast<int>(lanes);
  return launch(encode_with_errors_resident<Source, kNibble>,
                Grid{ceil_div(args.groups, threads / lanes), dim3(threads)}, args, bound);
}

template <class Source, bool kNibble>
Status preload_with_errors() {
  PLANQ_TRY((preload(encode_with_errors_resident<Source, kNibble>)));
  return preload(encode_with_errors_units<Source, kNibble>);
}

}  // namespace planq::cuda
