// fake_quantize on CUDA.
#pragma once

#include <array>
#include <cstdint>

#include "core/sku.h"
#include "cuda/element.cuh"
#include "ops/affine/affine.cuh"
#include "ops/affine/fake_quantize/desc.h"
#include "ops/affine/ranges/cuda.h"

namespace planq::fake_quantize {
namespace {

using cuda::ElementPlace;
using T = cuda::Element;
using C = math::Compute<T>;

// An integer of the caller's, or one that lies on the device.
struct Scalar {
  const std::int64_t* device;
  std::int64_t value;

  __device__ __forceinline__ std::uint64_t get() const {
    return static_cast<std::uint64_t>(device ? *device : value);
  }
};

// Random numbers cost so much that a thread takes more vectors than memory would ask for.
constexpr cuda::TileShape kRandomTile{4, 128, 6, false};

// Where the random numbers of stochastic rounding come from: there are none; the host made Philox's
// keys of its seed; the seed lies on the device, so that every thread makes the keys.
enum class Randomness { None, HostSeed, DeviceSeed };

struct FakeArgs {
  const T* input;
  T* output;
  math::AffineSpec<C> spec;
  math::PhiloxKeys keys;
  Scalar seed, offset;
};

template <Randomness kRandomness>
struct FakeQuantize {
  using C = fake_quantize::C;
  using Args = FakeArgs;
  static constexpr bool kStochastic = kRandomness != Randomness::None;
  static constexpr bool kHasRule = true;
  static constexpr int kVector = cuda::kPerVector<T>;
  static constexpr int kUnit = 1;
  static constexpr std::array<int, 3> kVectorBytes = {16, 16, 1};
  static constexpr cuda::TileShape kTile = kStochastic ? kRandomTile : cuda::kWritingTile;
  static constexpr cuda::TileShape kGroupTile = kTile;
  static constexpr cuda::ColumnShape kColumnShape{kStochastic ? 4 : 8, false, 4};
  // Random words are generated while the elements are on their way.
  struct Vector {
    uint4 elements;
    std::uint32_t words[kStochastic ? kVector : 1];
  };
  using Result = cuda::VectorOf<T, kVector>;
  using Parameters = cuda::GivenNumbers<C>;

  __device__ __forceinline__ static Vector load(const Args& args, const ElementPlace& place) {
    Vector vector = {cuda::load_once(args.input + place.at.at[0])};
    if constexpr (kStochastic) generate(args, place, vector.words);
    return vector;
  }
  template <bool kDivide>
  __device__ __forceinline__ static Parameters parameters(const Args& args,
                                                          const cuda::GivenParameters& given,
                                                          const cuda::StoredParameters<C>& stored) {
    return cuda::given_numbers<kDivide>(args.spec, given, stored);
  }

  // Random words of a vector, which begins at a multiple of its size: four from one counter.
  __device__ __forceinline__ static void generate(const Args& args, const ElementPlace& place,
                                                  std::uint32_t (&words)[kVector]) {
    if constexpr (kRandomness == Randomness::HostSeed)
      generate(args.keys, args.offset.get(), place, words);
    else
      generate(math::PhiloxKeys(args.seed.get()), args.offset.get(), place, words);
  }
  __device__ __forceinline__ static void generate(const math::PhiloxKeys& keys,
                                                  std::uint64_t offset, const ElementPlace& place,
                                                  std::uint32_t (&words)[kVector]) {
    const auto index = static_cast<std::uint64_t>(place.index);
#pragma unroll
    for (int j = 0; j < kVector; j += 4) {
      const auto four = math::philox(keys, offset + index / 4 + j / 4);
      const bool second = kVector < 4 && index % 4 != 0;
#pragma unroll
      for (int k = 0; k < kVector && k < 4; ++k)
        words[j + k] = second ? four.word[(k + 2) % 4] : four.word[k];
    }
  }
  // floor(fl(q + uniform)) inside the bounds; the random number is exact, so one rounding makes the
  // sum.
  __device__ __forceinline__ static float rounded_stochastically(float q, std::uint32_t word,
                                                                 const Parameters& n) {
    const float sum = __fmaf_rn(static_cast<float>(word >> 8), 0x1p-24f, q);
    return __fadd_rn(__fadd_rd(cuda::bounded(sum, n), 0x1.8p+23f), -0x1.8p+23f);
  }
  __device__ __forceinline__ static double rounded_stochastically(double q, std::uint32_t word,
                                                                  const Parameters& n) {
    // 2^28 and the random number, whose lowest bit is that of the double.
    const double uniform = __hiloint2double(0x41B00000, static_cast<int>(word >> 8)) - 0x1p28;
    const double sum = q + uniform;
    return __dadd_rn(__dadd_rd(cuda::bounded(sum, n), 0x1.8p+52), -0x1.8p+52);
  }

  // Whether the values are exact.
  template <bool kDivide, class ParametersOf>
  __device__ __forceinline__ static bool run(const Args& args, const Vector& vector,
                                             const ElementPlace&, const ParametersOf& of,
                                             Result& result) {
    C values[kVector];
    bool needs_slow_path = false;
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const Parameters& n = of(j);
      needs_slow_path |= !n.fast_is_exact;
      const C q = cuda::checked_quotient<kDivide>(cuda::element_of<T>(vector.elements, j), n,
                                                  needs_slow_path);
      values[j] =
          n.scale * (kStochastic ? rounded_stochastically(q, vector.words[kStochastic ? j : 0], n)
                                 : cuda::rounded_value(cuda::bounded(q, n)));
    }
    result = cuda::narrow_vector<T>(values);
    return !needs_slow_path;
  }
  __device__ __forceinline__ static void store(const Args& args, const ElementPlace& place,
                                               const Result& result) {
    cuda::store_elements(args.output + place.at.at[1], result);
  }

  template <class PlaceOf>
  __device__ __forceinline__ static void run_single(const Args& args,
                                                    const cuda::GivenParameters& given,
                                                    const PlaceOf& place_of, int first, int) {
    const ElementPlace place = place_of(first);
    const C x = math::widen(cuda::load_single(args.input + place.at.at[0]));
    const C uniform = kStochastic
                          ? math::element_uniform<C>(args.seed.get(), args.offset.get(),
                                                     static_cast<std::uint64_t>(place.index))
                          : C{0};
    const auto segment = cuda::given_segment(args.spec, given, place.at);
    cuda::store_single(
        args.output + place.at.at[1],
        math::narrow<T>(math::fake_quantized(x, args.spec, segment, kStochastic, uniform)));
  }
};

Scalar scalar_of(const OperandView& view) {
  return {static_cast<const std::int64_t*>(view.data), view.value};
}

template <bool kStochastic>
Status run(const Fields& f, const Operands& operands, const cuda::GivenParameters& given,
           const OperandView* scale, const OperandView* zero_point, Bound& bound) {
  FakeArgs args = {static_cast<const T*>(operands[kInput].data),
                   static_cast<T*>(operands[kOutput].data),
                   spec_of<C>(f),
                   {},
                   {},
                   {}};
  if (kStochastic) {
    args.seed = scalar_of(operands[kSeed]);
    args.offset = scalar_of(operands[kOffset]);
    args.keys = math::PhiloxKeys(static_cast<std::uint64_t>(args.seed.value));
  }
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kInput]}, {&operands[kOutput]}, {}, {scale}, {zero_point}};
  const auto launch_as = [&](auto op) {
    return cuda::launch_elements<decltype(op)>(args, given, f.shape, f.scope, layout, bound);
  };
  if constexpr (!kStochastic)
    return launch_as(FakeQuantize<Randomness::None>{});
  else
    return args.seed.device ? launch_as(FakeQuantize<Randomness::DeviceSeed>{})
                            : launch_as(FakeQuantize<Randomness::HostSeed>{});
}

template <bool kStochastic>
Status preload() {
  if constexpr (!kStochastic) return cuda::preload_elements<FakeQuantize<Randomness::None>>();
  PLANQ_TRY(cuda::preload_elements<FakeQuantize<Randomness::HostSeed>>());
  return cuda::preload_elements<FakeQuantize<Randomness::DeviceSeed>>();
}

// --- Given parameters --------------------------------------------------------------------------

template <bool kStochastic>
Status prepare(const Descriptor&, const Device&, State&) {
  return preload<kStochastic>();
}

template <bool kStochastic>
Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const bool asymmetric = f.mode == Mode::Asymmetric;
  const OperandView* zero_point = asymmetric ? &operands[kZeroPoint] : nullptr;
  const cuda::GivenParameters given = {operands[kScale].data,
                                       asymmetric ? zero_point->data : nullptr, f.scale_dtype,
                                       f.zero_point_dtype};
  return run<kStochastic>(f, operands, given, &operands[kScale], zero_point, bound);
}

// --- Dynamic parameters ------------------------------------------------------------------------

struct ParameterArgs {
  SegmentArrays<C> segments;
  Wanted wanted;
  math::AffineSpec<C> spec;
};

constexpr int kParameterThreads = 128;

// A thread for each segment.
__global__ void __launch_bounds__(kParameterThreads)
    segment_parameters(const __grid_constant__ ParameterArgs args) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kParameterThreads + threadIdx.x;
  if (i >= args.segments.count) return;
  const auto parameters = args.segments.parameters(args.spec, i);
  args.segments.scale[i] = parameters.scale;
  args.segments.inverse[i] = parameters.inverse;
  args.segments.zero_point[i] = parameters.zero_point;
  args.wanted.put(parameters, args.spec.scale_dtype, i);
}

template <bool kStochastic>
Status prepare_dynamic(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(cuda::preload_ranges<T>());
  PLANQ_TRY(cuda::preload(segment_parameters));
  return preload<kStochastic>();
}

std::size_t dynamic_workspace(const Descriptor& descriptor, const Device& device) {
  const Fields& f = descriptor.as<Fields>();
  Scratch scratch;
  SegmentArrays<C>(f, scratch);
  cuda::book_ranges(cuda::plan_ranges(range_problem(f), device), scratch);
  return scratch.bytes();
}
std::size_t largest_dynamic_workspace(const Descriptor& descriptor, const Device& device) {
  const Fields& f = descriptor.as<Fields>();
  Scratch scratch;
  SegmentArrays<C>(f, scratch);
  return scratch.bytes() + cuda::largest_ranges(range_problem(f), device);
}

template <bool kStochastic>
Status bind_dynamic(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const cuda::RangePlan ranges = cuda::plan_ranges(range_problem(f), call.device);
  Scratch scratch(call.workspace);
  const SegmentArrays<C> segments(f, scratch);
  const cuda::RangePartials partials = cuda::book_ranges(ranges, scratch);
  if (segments.count == 0) return Status::success();
  PLANQ_TRY(cuda::launch_ranges<T>(ranges, segments.ranges(f, operands[kInput]), partials, bound));
  cuda::Grid grid;
  grid.blocks = (segments.count + kParameterThreads - 1) / kParameterThreads;
  grid.threads = dim3(kParameterThreads);
  const ParameterArgs args = {segments, Wanted(f, operands), spec_of<C>(f)};
  PLANQ_TRY(cuda::launch(segment_parameters, grid, args, bound));
  const OperandView view = contiguous_view(parameter_shape(f.shape, f.scope));
  const cuda::GivenParameters given = {
      segments.scale, segments.zero_point,   sizeof(C) == 8 ? DType::Float64 : DType::Float32,
      DType::Int32,   NibbleOrder::LowFirst, segments.inverse};
  return run<kStochastic>(f, operands, given, &view, &view, bound);
}

// --- Kernels -----------------------------------------------------------------------------------

template <Rounding kRounding, bool kDynamic>
constexpr Kernel make_kernel() {
  constexpr bool kWide = std::is_same_v<C, double>;
  constexpr bool kStochastic = kRounding == Rounding::Stochastic;
  return {
      .op = "fake_quantize",
      .variant = variant_of(kDynamic),
      .arithmetic = arithmetic_of(kRounding),
      .body = "elements",
      .dtypes = kDTypes<cuda::kElement, cuda::kElement>,
      .revision = 1,
      .backend = Backend::Cuda,
      .arch = {80},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = kWide ? DType::Float64 : DType::Float32,
                    .rounding = kRounding,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = std::string_view("element by element; correctly rounded quotients; "
                                              "exact integer sums; draws by seed and element index "
                                              "alone")},
      .rejects = rejects<cuda::kElement, kRounding, kDynamic>,
      .workspace = kDynamic ? dynamic_workspace : no_workspace,
      .prepare = kDynamic ? prepare_dynamic<kStochastic> : prepare<kStochastic>,
      .bind = kDynamic ? bind_dynamic<kStochastic> : bind<kStochastic>,
      .largest_workspace = kDynamic ? largest_dynamic_workspace : nullptr,
  };
}

constexpr Kernel kKernels[] = {
    make_kernel<Rounding::NearestEven, false>(), make_kernel<Rounding::Stochastic, false>(),
    make_kernel<Rounding::NearestEven, true>(), make_kernel<Rounding::Stochastic, true>()};

}  // namespace

}  // namespace planq::fake_quantize
