// quantize on CUDA.
#include <array>
#include <cstdint>

#include "core/rejects.h"
#include "core/sku.h"
#include "cuda/affine.cuh"
#include "cuda/slice.cuh"
#include "ops/quantize/desc.h"

namespace planq::quantize {
namespace {

using cuda::Codes;
using cuda::ElementPlace;
using In = cuda::Slice;
using Value = math::Compute<In>;

// What the kernels of all vector sizes get.
struct QuantizeArgs {
  const In* input;
  std::uint8_t* output;
  math::AffineRecipe<Value> recipe;
  NibbleOrder order;
  bool shifted;  // there are zero points
};

template <Codes kCodes, int kCount = cuda::kPerVector<In>>
struct Quantize {
  using C = Value;
  using Args = QuantizeArgs;
  using Columns = Quantize<kCodes, cuda::kPerColumnVector<In>>;
  static constexpr bool kHasRule = true;
  static constexpr int kVector = kCount;
  static constexpr int kPerByte = kCodes == Codes::Nibble ? 2 : 1;
  static constexpr bool kIntegerBounds = sizeof(C) == 8 && !cuda::is_float8(kCodes);
  static constexpr int kUnit = kPerByte;
  static constexpr std::array<int, 3> kVectorBytes = {16, kVector / kPerByte, 1};
  using Vector = uint4;
  using Parameters = cuda::GivenNumbers<C>;

  __device__ __forceinline__ static Vector load(const Args& args, const ElementPlace& place) {
    return cuda::load_elements<In, kCount>(args.input + place.at.at[0]);
  }
  __device__ __forceinline__ static Parameters parameters(const Args& args,
                                                          const cuda::GivenParameters& given,
                                                          const cuda::StoredParameters<C>& stored) {
    return cuda::given_numbers(args.recipe, given, stored);
  }

  // The code of an element in the low bits; fp8: the bits of a float inside the bounds.
  template <bool kDivide>
  __device__ __forceinline__ static std::uint32_t fast_code(C x, const Parameters& n, bool& odd) {
    C q = cuda::checked_quotient<kDivide>(x, n, odd);
    // double has no instruction for a maximum, so its codes are held to the bounds as integers.
    if constexpr (kIntegerBounds) return static_cast<std::uint32_t>(cuda::rounded(q));
    q = cuda::bounded(q, n);
    if constexpr (!cuda::is_float8(kCodes)) return static_cast<std::uint32_t>(cuda::rounded(q));
    // The corrections of the quotient lose the sign of a zero.
    const std::uint32_t value = __float_as_uint(cuda::as_float(q));
    return kDivide ? (value & 0x7FFFFFFFu) | (sign_word(x) & 0x80000000u) : value;
  }
  __device__ __forceinline__ static std::uint32_t sign_word(float x) { return __float_as_uint(x); }
  __device__ __forceinline__ static std::uint32_t sign_word(double x) {
    return static_cast<std::uint32_t>(__double2hiint(x));
  }

  // Vectors and units begin on whole bytes.
  __device__ __forceinline__ static std::int64_t byte_at(const ElementPlace& place) {
    return place.at.at[1] >> (kPerByte - 1);
  }

  // Kept out of line: it is rare, and would be there for every element of a vector.
  __device__ __noinline__ static std::uint32_t slow_code(C x, const math::AffineRecipe<C>& recipe,
                                                         C scale, C inverse,
                                                         std::int32_t zero_point) {
    return math::given_code(x, recipe, {scale, inverse, zero_point, false});
  }

  template <bool kDivide, class ParametersOf>
  __device__ __forceinline__ static void run(const Args& args, const Vector& vector,
                                             const ElementPlace& place, const ParametersOf& of) {
    std::uint32_t codes[kVector];
    // Bounds of one sign make a signed zero of fp8 depend on them.
    bool odd = cuda::is_float8(kCodes) && !(args.recipe.q_min < C{0} && args.recipe.q_max > C{0});
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      odd |= !of(j).usual;
      codes[j] = fast_code<kDivide>(cuda::element_of<In>(vector, j), of(j), odd);
    }
    if (args.shifted) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) codes[j] += static_cast<std::uint32_t>(of(j).zero_point);
    }
    if constexpr (kIntegerBounds) {
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        codes[j] = static_cast<std::uint32_t>(
            min(max(static_cast<std::int32_t>(codes[j]), args.recipe.q_low), args.recipe.q_high));
    }
    cuda::Word<kVector / kPerByte> word;
    if (!odd) {
      word = cuda::finish<kCodes, cuda::Bounds::None>(codes, args.recipe.output_dtype, args.order);
    } else {
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        codes[j] = slow_code(cuda::element_of<In>(vector, j), args.recipe, of(j).scale,
                             of(j).inverse, of(j).zero_point);
      word = cuda::pack_codes<kCodes>(codes, args.order);
    }
    cuda::store_word<kVector / kPerByte>(args.output + byte_at(place), word);
  }

  template <class PlaceOf>
  __device__ __forceinline__ static void run_single(const Args& args,
                                                    const cuda::GivenParameters& given,
                                                    const PlaceOf& place_of, int first, int count) {
    std::uint8_t codes[2] = {0, 0};
    std::int64_t byte = 0;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      if (i >= count) break;
      const ElementPlace place = place_of(first + i);
      const C x = math::widen(cuda::load_single(args.input + place.at.at[0]));
      codes[i] =
          math::given_code(x, args.recipe, cuda::given_segment(args.recipe, given, place.at));
      if (i == 0) byte = byte_at(place);
    }
    cuda::store_once(args.output + byte,
                     kPerByte == 2 ? math::pack_nibbles(codes[0], codes[1], args.order) : codes[0]);
  }
};

template <Codes kCodes>
Status prepare(const Descriptor& descriptor, const Device&, State& state) {
  state.emplace<Fields>() = descriptor.as<Fields>();
  return cuda::preload_elements<Quantize<kCodes>>();
}

template <Codes kCodes>
Status launch(const State& state, const Operands& operands, Workspace, const Stream& stream) {
  const Fields& f = state.as<Fields>();
  const bool asymmetric = f.mode == Mode::Asymmetric;
  const QuantizeArgs args = {static_cast<const In*>(operands[kInput].data),
                             static_cast<std::uint8_t*>(operands[kOutput].data),
                             recipe_of<Value>(f), f.nibble_order, asymmetric};
  const cuda::GivenParameters given = {operands[kScale].data,
                                       asymmetric ? operands[kZeroPoint].data : nullptr,
                                       f.scale_dtype, f.zero_point_dtype, f.nibble_order};
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kInput]},
      {&operands[kOutput], is_four_bit(f.output_dtype)},
      {},
      {&operands[kScale]},
      {asymmetric ? &operands[kZeroPoint] : nullptr, is_four_bit(f.zero_point_dtype)}};
  return cuda::launch_elements<Quantize<kCodes>>(args, given, f.shape, f.scope, layout,
                                                 stream.handle);
}

template <DType kOut>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", cuda::kSlice, f.input_dtype);
  return reason.accepted() ? expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype)
                           : reason;
}

template <DType kOut>
struct SkuParts {
  static constexpr std::array<std::string_view, 4> kParts = {
      "quantize/cuda/elements/", short_name(cuda::kSlice), "_", short_name(kOut)};
};

template <DType kOut>
constexpr Kernel row() {
  constexpr bool kWide = std::is_same_v<Value, double>;
  return {
      .sku = JoinedText<SkuParts<kOut>>::view(),
      .revision = 1,
      .backend = Backend::Cuda,
      .arch = {80},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = kWide ? DType::Float64 : DType::Float32,
                    .rounding = Rounding::NearestEven,
                    .max_ulp = 0,
                    .batch_invariant = true,
                    .basis = std::string_view("element by element; correctly rounded quotients; "
                                              "round to nearest even; exact integer sums")},
      .rejects = rejects<kOut>,
      .workspace = cuda::no_workspace,
      .prepare = prepare<cuda::codes_of(kOut)>,
      .launch = launch<cuda::codes_of(kOut)>,
  };
}

constexpr Kernel kRows[] = {row<DType::Int8>(),         row<DType::UInt8>(),
                            row<DType::Int4>(),         row<DType::UInt4>(),
                            row<DType::Float8E4M3FN>(), row<DType::Float8E5M2>()};

}  // namespace

extern const std::span<const Kernel> PLANQ_CUDA_ROWS;
const std::span<const Kernel> PLANQ_CUDA_ROWS = kRows;

}  // namespace planq::quantize
