// dequantize_reduce on CUDA: sums over ranks as elements, or a team of threads makes codes of the
// sums of its group. Sums that are added element by element and become codes are
// added twice, for the range and for the codes.
#include "ops/group/dequantize_reduce/kernels.h"
#include "ops/group/dequantize_reduce/sums.cuh"
#include "ops/group/units.cuh"

namespace planq::cuda {

// Vectors of a thread, whose sums are in registers, and those that are loaded at a time.
template <bool kNibble>
inline constexpr int kSummedVectors = kNibble ? 1 : 2;
inline constexpr int kSummedLoads = 4;
inline constexpr int kSummedLanes = 256;  // of a team with so many sums
inline constexpr int kSummedBlocks = 3;   // of a multiprocessor, that its registers hold

struct ReduceArgs {
  RankedCodes ranked;
  ElementPlaces output_places;
  std::uint8_t* output;
  GroupMemory<float> parameters;  // of the output
  std::int64_t elements, size, groups;
  int groups_of_unit, lanes;
  math::GroupSpec spec;
  bool half;
};

// Of sums of whole vectors: those in a group of the output, and in all of them.
struct ReduceVectorArgs : ReduceArgs {
  RankVectors input;
  std::uint32_t group_vectors, vectors;
};

// --- Sums as elements ---------------------------------------------------------------------------

template <class T, bool kNibble>
__global__ void __launch_bounds__(kTeamThreads)
    write_sum_vectors(const __grid_constant__ ReduceVectorArgs args) {
  constexpr int kCodes = kRankCodes<kNibble>, kPer = kGroupVector<T>;
  const std::uint32_t at[1] = {blockIdx.x * kTeamThreads + threadIdx.x};
  if (at[0] >= args.vectors) return;
  float sums[1][kCodes];
  // Without offsets there are zeros, which change nothing.
  sum_vectors<kNibble, true, kSummedLoads>(args.input, at, sums);
#pragma unroll
  for (int i = 0; i < kCodes; i += kPer) {
    T each[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) each[j] = math::narrowed<T>(sums[0][i + j]);
    uint4 vector;
    memcpy(&vector, each, sizeof vector);
    store_vector(reinterpret_cast<T*>(args.output) + std::int64_t{at[0]} * kCodes + i, vector);
  }
}

template <class T, bool kNibble>
__global__ void __launch_bounds__(kTeamThreads)
    write_sums(const __grid_constant__ ReduceArgs args) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kTeamThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kTeamThreads + threadIdx.x;
       i < args.elements; i += step)
    reinterpret_cast<T*>(args.output)[args.output_places[i]] =
        math::narrowed<T>(sum_element<kNibble>(args.ranked, args.half, i));
}

// --- Sums as codes ------------------------------------------------------------------------------

// One group of the output a team, kSummedVectors vectors of it in each thread.
template <bool kNibble, bool kOffsets>
__global__ void __launch_bounds__(kSummedLanes, kSummedBlocks)
    requantize_resident(const __grid_constant__ ReduceVectorArgs args) {
  constexpr int kVectors = kSummedVectors<kNibble>, kCodes = kRankCodes<kNibble>;
  math::GroupSpec spec = args.spec;
  spec.form = kOffsets ? math::GroupForm::Asymmetric : math::GroupForm::Symmetric;
  const int lane = static_cast<int>(threadIdx.x) & (args.lanes - 1);
  const std::int64_t group =
      static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / args.lanes) + threadIdx.x / args.lanes;
  const bool exists = group < args.groups;
  // A thread beyond the end repeats the last vector, which changes no range.
  const std::uint32_t begin =
      static_cast<std::uint32_t>(exists ? group : args.groups - 1) * args.group_vectors;
  std::uint32_t at[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    at[i] = begin + min(static_cast<std::uint32_t>(i * args.lanes + lane), args.group_vectors - 1);
  float sums[kVectors][kCodes];
  sum_vectors<kNibble, kOffsets, kSummedLoads>(args.input, at, sums);
  math::GroupRange range;
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
#pragma unroll
    for (int j = 0; j < kCodes; ++j) kOffsets ? range.add(sums[i][j]) : range.add_peak(sums[i][j]);
  const auto scale = math::measured_scale<float>(spec, team_range(range, args.lanes));
  if (!exists) return;
  if (lane == 0) store_pair(args.parameters, spec.form, group, scale);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    std::uint32_t words[4];
    encode_group_words<float, false, kNibble>(scale, sums[i], words);
    if (static_cast<std::uint32_t>(i * args.lanes + lane) < args.group_vectors)
      store_vector(args.output + std::int64_t{at[i]} * kVectorBytes,
                   make_uint4(words[0], words[1], words[2], words[3]));
  }
}

template <bool kNibble>
__global__ void __launch_bounds__(kMostLanes)
    requantize_units(const __grid_constant__ ReduceArgs args) {
  const auto sum = [&](std::int64_t i) { return sum_element<kNibble>(args.ranked, args.half, i); };
  encode_by_units<kNibble>(
      args, [](std::int64_t group) { return group; },
      [&](std::int64_t group, int lane) {
        return measure_group<float>(args, group, group, lane, sum);
      },
      [&](std::int64_t i, std::int64_t, const math::GroupScale& scale) {
        return static_cast<int>(math::group_code<float, false>(args.spec, scale, sum(i)));
      });
}

// --- Launches -----------------------------------------------------------------------------------

template <bool kNibble>
bool sums_vectors(const ReduceArgs& args) {
  return RankVectors::fits<kNibble>(args.ranked, args.elements) &&
         args.output_places.consecutive() && aligned_to(args.output, kVectorBytes);
}

template <bool kNibble>
ReduceVectorArgs vector_args(const ReduceArgs& args) {
  constexpr int kCodes = kRankCodes<kNibble>;
  return {args, RankVectors::of<kNibble>(args.ranked, args.half),
          static_cast<std::uint32_t>(args.size / kCodes),
          static_cast<std::uint32_t>(args.elements / kCodes)};
}

template <class T, bool kNibble>
Status launch_sums(const ReduceArgs& args, int multiprocessors, Bound& bound) {
  if (args.elements == 0) return Status::success();
  if (sums_vectors<kNibble>(args)) {
    const ReduceVectorArgs vectors = vector_args<kNibble>(args);
    return launch(write_sum_vectors<T, kNibble>,
                  Grid{ceil_div(vectors.vectors, kTeamThreads), dim3(kTeamThreads)}, vectors,
                  bound);
  }
  const std::int64_t most = std::int64_t{multiprocessors} * 8;
  return launch(write_sums<T, kNibble>,
                Grid{std::min(ceil_div(args.elements, kTeamThreads), most), dim3(kTeamThreads)},
                args, bound);
}

template <bool kNibble>
Status launch_resident(ReduceArgs args, Bound& bound) {
  const std::int64_t lanes =
      lanes_for(ceil_div(args.size / kRankCodes<kNibble>, kSummedVectors<kNibble>));
  const unsigned threads = threads_for(lanes);
  args.lanes = static_cast<int>(lanes);
  const Grid grid{ceil_div(args.groups, threads / lanes), dim3(threads)};
  const ReduceVectorArgs vectors = vector_args<kNibble>(args);
  return args.spec.form == math::GroupForm::Asymmetric
             ? launch(requantize_resident<kNibble, true>, grid, vectors, bound)
             : launch(requantize_resident<kNibble, false>, grid, vectors, bound);
}

template <bool kNibble>
Status launch_requantize(ReduceArgs args, int multiprocessors, Bound& bound) {
  constexpr int kCodes = kRankCodes<kNibble>;
  if (args.elements == 0) return Status::success();
  if (sums_vectors<kNibble>(args) && args.size % kCodes == 0 && args.elements % args.size == 0 &&
      args.size / kCodes <= std::int64_t{kSummedLanes} * kSummedVectors<kNibble>)
    return launch_resident<kNibble>(args, bound);
  const Grid grid = unit_grid(args, multiprocessors);
  return launch(requantize_units<kNibble>, grid, args, bound);
}

}  // namespace planq::cuda

namespace planq::dequantize_reduce {
namespace {

cuda::ReduceArgs args_of(const Fields& f, const Operands& operands) {
  cuda::ReduceArgs args{};
  args.ranked = {input_groups(f), operands[kInput], operands[kParameters], f.ranks, f.mean};
  args.output = static_cast<std::uint8_t*>(operands[kOutput].data);
  if (!makes_codes(f) || !is_four_bit(f.output_dtype))
    args.output_places = {f.shape, operands[kOutput]};
  args.elements = f.shape.elements();
  args.half = sums_halves(f);
  if (!makes_codes(f)) return args;
  const Grouping groups = output_groups(f);
  args.parameters = {operands[kOutputParameters], {}, {}};
  args.size = groups.size;
  args.groups = groups.groups;
  args.groups_of_unit = static_cast<int>(groups.groups_of_unit());
  args.spec = groups.spec;
  return args;
}

template <DType kIn, DType kOut>
Status bind(const Call& call, Bound& bound) {
  constexpr bool kNibble = is_four_bit(kIn);
  const cuda::ReduceArgs args = args_of(call.fields<Fields>(), call.operands);
  if constexpr (kIn == kOut)
    return cuda::launch_requantize<kNibble>(args, call.device.multiprocessors, bound);
  else
    return cuda::launch_sums<math::Stored<kOut>, kNibble>(args, call.device.multiprocessors, bound);
}

struct Cuda {
  static constexpr Backend kBackend = Backend::Cuda;
  static constexpr bool kFeedback = false;

  template <DType kIn, DType kOut>
  static Status prepare(const Descriptor&, const Device&, State&) {
    constexpr bool kNibble = is_four_bit(kIn);
    if constexpr (kIn == kOut) {
      PLANQ_TRY((cuda::preload(cuda::requantize_resident<kNibble, false>)));
      PLANQ_TRY((cuda::preload(cuda::requantize_resident<kNibble, true>)));
      return cuda::preload(cuda::requantize_units<kNibble>);
    } else {
      PLANQ_TRY((cuda::preload(cuda::write_sum_vectors<math::Stored<kOut>, kNibble>)));
      return cuda::preload(cuda::write_sums<math::Stored<kOut>, kNibble>);
    }
  }
  template <DType kIn, DType kOut>
  static constexpr auto kBind = bind<kIn, kOut>;
};

constexpr auto kKernels =
    joined(kernels_from<Cuda, DType::Int8>(), kernels_from<Cuda, DType::Int4>());

}  // namespace
}  // namespace planq::dequantize_reduce

PLANQ_KERNELS(dequantize_reduce, cuda, kKernels);
