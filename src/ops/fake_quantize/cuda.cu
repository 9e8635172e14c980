// fake_quantize on CUDA.
#include <array>
#include <cstdint>

#include "core/rejects.h"
#include "core/sku.h"
#include "cuda/affine.cuh"
#include "cuda/slice.cuh"
#include "ops/fake_quantize/desc.h"

namespace planq::fake_quantize {
namespace {

using cuda::ElementPlace;
using T = cuda::Slice;
using C = math::Compute<T>;

// An integer of the caller's, or one that lies on the device.
struct Scalar {
  const std::int64_t* device;
  std::int64_t value;

  __device__ __forceinline__ std::uint64_t get() const {
    return static_cast<std::uint64_t>(device ? *device : value);
  }
};

template <bool kStochastic>
struct FakeQuantize {
  struct Args {
    const T* input;
    T* output;
    math::AffineRecipe<C> recipe;
    Scalar seed, offset;
  };
  static constexpr bool kHasRule = true;
  static constexpr int kVector = cuda::kPerVector<T>;
  static constexpr int kUnit = 1;
  static constexpr std::array<int, 3> kVectorBytes = {16, 16, 1};
  using Vector = uint4;
  using Parameters = cuda::GivenNumbers<C>;

  __device__ __forceinline__ static Vector load(const Args& args, const ElementPlace& place) {
    return cuda::load_once(args.input + place.at.at[0]);
  }
  __device__ __forceinline__ static Parameters parameters(const Args& args,
                                                          const cuda::GivenParameters& given,
                                                          const ElementPlace& place) {
    return cuda::given_numbers(args.recipe, given.scale_at<C>(place.at.at[kElementScale]),
                               given.zero_point_at(place.at.at[kElementZeroPoint]));
  }

  // The draws of a vector, which begins at a multiple of its size: four from one counter.
  __device__ __forceinline__ static void draw(const Args& args, const ElementPlace& place,
                                              C (&draws)[kVector]) {
    const std::uint64_t seed = args.seed.get(), offset = args.offset.get();
    const auto index = static_cast<std::uint64_t>(place.index);
#pragma unroll
    for (int j = 0; j < kVector; j += 4) {
      const auto words = math::philox(seed, offset + index / 4 + j / 4);
      const int first = kVector < 4 ? static_cast<int>(index % 4) : 0;
#pragma unroll
      for (int k = 0; k < kVector && k < 4; ++k) {
        std::uint32_t word = words.word[k];
        if constexpr (kVector < 4) word = first == 0 ? word : words.word[k + 2];
        draws[j + k] = math::unit_draw<C>(word);
      }
    }
  }

  // Kept out of line: it is rare, and would be there for every element of a vector.
  __device__ __noinline__ static C slow_value(C x, const math::AffineRecipe<C>& recipe, C scale,
                                              C inverse, std::int32_t zero_point, C draw) {
    return math::fake_quantized(x, recipe, {scale, inverse, zero_point, false}, kStochastic, draw);
  }

  template <bool kDivide, class ParametersOf>
  __device__ __forceinline__ static void run(const Args& args, const Vector& vector,
                                             const ElementPlace& place, const ParametersOf& of) {
    C draws[kVector] = {};
    if constexpr (kStochastic) draw(args, place, draws);
    C values[kVector];
    bool odd = false;
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const Parameters& n = of(j);
      odd |= !n.usual;
      C q = cuda::checked_quotient<kDivide>(cuda::element_of<T>(vector, j), n, odd);
      if constexpr (kStochastic) q = math::floor_of(q + draws[j]);
      values[j] = n.scale * cuda::rounded_value(cuda::bounded(q, n));
    }
    if (odd) {
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        values[j] = slow_value(cuda::element_of<T>(vector, j), args.recipe, of(j).scale,
                               of(j).inverse, of(j).zero_point, draws[j]);
    }
    cuda::store_elements(args.output + place.at.at[1], cuda::narrow_vector<T>(values, odd));
  }

  template <class PlaceOf>
  __device__ __forceinline__ static void run_single(const Args& args,
                                                    const cuda::GivenParameters& given,
                                                    const PlaceOf& place_of, int first, int) {
    const ElementPlace place = place_of(first);
    const C x = math::widen(cuda::load_single(args.input + place.at.at[0]));
    const C draw = kStochastic ? math::element_draw<C>(args.seed.get(), args.offset.get(),
                                                       static_cast<std::uint64_t>(place.index))
                               : C{0};
    const auto segment = parameters(args, given, place).segment();
    cuda::store_single(
        args.output + place.at.at[1],
        math::narrow<T>(math::fake_quantized(x, args.recipe, segment, kStochastic, draw)));
  }
};

template <bool kStochastic>
Status prepare(const Descriptor& descriptor, const Device&, State& state) {
  state.emplace<Fields>() = descriptor.as<Fields>();
  return cuda::preload_elements<FakeQuantize<kStochastic>>();
}

Scalar scalar_of(const OperandView& view) {
  return {static_cast<const std::int64_t*>(view.data), view.value};
}

template <bool kStochastic>
Status launch(const State& state, const Operands& operands, Workspace, const Stream& stream) {
  const Fields& f = state.as<Fields>();
  const bool asymmetric = f.mode == Mode::Asymmetric;
  typename FakeQuantize<kStochastic>::Args args = {static_cast<const T*>(operands[kInput].data),
                                                   static_cast<T*>(operands[kOutput].data),
                                                   recipe_of<C>(f),
                                                   {},
                                                   {}};
  if (kStochastic) {
    args.seed = scalar_of(operands[kSeed]);
    args.offset = scalar_of(operands[kOffset]);
  }
  const cuda::GivenParameters given = {operands[kScale].data,
                                       asymmetric ? operands[kZeroPoint].data : nullptr,
                                       f.scale_dtype, f.zero_point_dtype};
  const std::array<ElementOperand, 5> layout = {ElementOperand{&operands[kInput]},
                                                {&operands[kOutput]},
                                                {},
                                                {&operands[kScale]},
                                                {asymmetric ? &operands[kZeroPoint] : nullptr}};
  return cuda::launch_elements<FakeQuantize<kStochastic>>(args, given, f.shape, f.scope, layout,
                                                          stream.handle);
}

template <Rounding kRounding>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  if (f.dynamic) return Reason::refuse(ReasonKind::Feature, "computes given parameters only");
  Reason reason = expect(ReasonKind::DType, "input_dtype", cuda::kSlice, f.input_dtype);
  return reason.accepted() ? expect(ReasonKind::Feature, "rounding", kRounding, f.rounding)
                           : reason;
}

template <Rounding kRounding>
struct SkuParts {
  static constexpr std::array<std::string_view, 4> kParts = {
      "fake_quantize/cuda/", kRounding == Rounding::Stochastic ? "stochastic" : "elements", "/",
      short_name(cuda::kSlice)};
};

template <Rounding kRounding>
constexpr Kernel row() {
  constexpr bool kWide = std::is_same_v<C, double>;
  constexpr bool kStochastic = kRounding == Rounding::Stochastic;
  return {
      .sku = JoinedText<SkuParts<kRounding>>::view(),
      .revision = 1,
      .backend = Backend::Cuda,
      .arch = {80},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = kWide ? DType::Float64 : DType::Float32,
                    .rounding = kRounding,
                    .max_ulp = 0,
                    .batch_invariant = true,
                    .basis = std::string_view("element by element; correctly rounded quotients; "
                                              "exact integer sums; draws by seed and element index "
                                              "alone")},
      .rejects = rejects<kRounding>,
      .workspace = cuda::no_workspace,
      .prepare = prepare<kStochastic>,
      .launch = launch<kStochastic>,
  };
}

constexpr Kernel kRows[] = {row<Rounding::NearestEven>(), row<Rounding::Stochastic>()};

}  // namespace

extern const std::span<const Kernel> PLANQ_CUDA_ROWS;
const std::span<const Kernel> PLANQ_CUDA_ROWS = kRows;

}  // namespace planq::fake_quantize
