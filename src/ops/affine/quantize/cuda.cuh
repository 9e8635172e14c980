// quantize on CUDA.
#pragma once

#include <array>
#include <cstdint>

#include "core/rejects.h"
#include "core/sku.h"
#include "cuda/element.cuh"
#include "ops/affine/affine.cuh"
#include "ops/affine/quantize/desc.h"

namespace planq::quantize {
namespace {

using cuda::Codes;
using cuda::ElementPlace;
using In = cuda::Element;
using Value = math::Compute<In>;

struct QuantizeArgs {
  const In* input;
  std::uint8_t* output;
  math::AffineSpec<Value> spec;
  NibbleOrder order;
  bool bounded;  // fp8: inside narrower bounds than the type's
};

template <Codes kCodes>
struct Quantize {
  using C = Value;
  using Args = QuantizeArgs;
  static constexpr bool kHasRule = true;
  static constexpr int kVector = cuda::kPerVector<In>;
  static constexpr int kPerByte = kCodes == Codes::Nibble ? 2 : 1;
  static constexpr int kUnit = kPerByte;
  static constexpr std::array<int, 3> kVectorBytes = {16, kVector / kPerByte, 1};
  static constexpr cuda::TileShape kTile =
      kPerByte == 2 && sizeof(In) != 4 ? cuda::kLongTile : cuda::kReadingTile;
  static constexpr cuda::TileShape kGroupTile{4, 256, sizeof(In) == 2 ? 5 : 4, true};
  static constexpr cuda::ColumnShape kColumnShape{4, false, 6};
  using Vector = uint4;
  using Result = cuda::Word<kVector / kPerByte>;
  using Parameters = cuda::GivenNumbers<C>;

  __device__ __forceinline__ static Vector load(const Args& args, const ElementPlace& place) {
    return cuda::load_once(args.input + place.at.at[0]);
  }
  template <bool kDivide>
  __device__ __forceinline__ static Parameters parameters(const Args& args,
                                                          const cuda::GivenParameters& given,
                                                          const cuda::StoredParameters<C>& stored) {
    auto numbers = cuda::given_numbers<kDivide>(args.spec, given, stored);
    numbers.fast_is_exact = numbers.fast_is_exact && numbers.zero_point <= cuda::kLargeHalf &&
                            numbers.zero_point >= -cuda::kLargeHalf;
    return numbers;
  }

  // Codes of a vector, where all quotients and zero points are small.
  template <bool kDivide, class ParametersOf>
  __device__ __forceinline__ static Result fast_codes(const Args& args, const Vector& vector,
                                                      const ParametersOf& of,
                                                      bool& needs_slow_path) {
    if constexpr (cuda::is_float8(kCodes)) {
      C quotients[kVector];
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        quotients[j] = cuda::checked_quotient<kDivide, true>(cuda::element_of<In>(vector, j), of(j),
                                                             needs_slow_path);
      // The conversion saturates, which is enough for the bounds of the type.
      if (args.bounded) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) quotients[j] = cuda::bounded(quotients[j], of(j));
      }
      std::uint32_t bits[kVector];
#pragma unroll
      for (int j = 0; j < kVector; ++j) bits[j] = __float_as_uint(cuda::as_float(quotients[j]));
      return cuda::finish<kCodes, cuda::Bounds::None>(bits, args.spec.output_dtype, args.order);
    } else {
      std::uint32_t pairs[(kVector + 1) / 2] = {};
      const std::uint32_t lows = cuda::twice(args.spec.q_low);
      const std::uint32_t highs = cuda::twice(args.spec.q_high);
#pragma unroll
      for (int j = 0; j < kVector; j += 2) {
        const int other = j + 1 < kVector ? j + 1 : j;
        const std::uint32_t steps =
            cuda::halves(fast_steps<kDivide>(vector, j, of, needs_slow_path),
                         fast_steps<kDivide>(vector, other, of, needs_slow_path));
        const std::uint32_t zeros = cuda::halves(static_cast<std::uint32_t>(of(j).zero_point),
                                                 static_cast<std::uint32_t>(of(other).zero_point));
        pairs[j / 2] = cuda::bounded_halves(steps, zeros, lows, highs);
      }
      return cuda::pack_halves<kCodes, kVector>(pairs, args.order);
    }
  }
  // The rounded quotient of an element in the low 16 bits.
  template <bool kDivide, class ParametersOf>
  __device__ __forceinline__ static std::uint32_t fast_steps(const Vector& vector, int j,
                                                             const ParametersOf& of,
                                                             bool& needs_slow_path) {
    return static_cast<std::uint32_t>(cuda::rounded(
        cuda::checked_quotient<kDivide>(cuda::element_of<In>(vector, j), of(j), needs_slow_path,
                                        static_cast<C>(cuda::kLargeHalf))));
  }

  // Vectors and units begin on whole bytes.
  __device__ __forceinline__ static std::int64_t byte_at(const ElementPlace& place) {
    return place.at.at[1] >> (kPerByte - 1);
  }

  // Whether the codes are exact.
  template <bool kDivide, class ParametersOf>
  __device__ __forceinline__ static bool run(const Args& args, const Vector& vector,
                                             const ElementPlace&, const ParametersOf& of,
                                             Result& codes) {
    // Bounds of one sign make a signed zero of fp8 depend on them.
    bool needs_slow_path =
        cuda::is_float8(kCodes) && !(args.spec.q_min < C{0} && args.spec.q_max > C{0});
#pragma unroll
    for (int j = 0; j < kVector; ++j) needs_slow_path |= !of(j).fast_is_exact;
    codes = fast_codes<kDivide>(args, vector, of, needs_slow_path);
    return !needs_slow_path;
  }
  __device__ __forceinline__ static void store(const Args& args, const ElementPlace& place,
                                               Result codes) {
    cuda::store_word<kVector / kPerByte>(args.output + byte_at(place), codes);
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
      codes[i] = math::given_code(x, args.spec, cuda::given_segment(args.spec, given, place.at));
      if (i == 0) byte = byte_at(place);
    }
    cuda::store_once(args.output + byte,
                     kPerByte == 2 ? math::pack_nibbles(codes[0], codes[1], args.order) : codes[0]);
  }
};

template <Codes kCodes>
Status prepare(const Descriptor&, const Device&, State&) {
  return cuda::preload_elements<Quantize<kCodes>>();
}

template <Codes kCodes>
Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const bool asymmetric = f.mode == Mode::Asymmetric;
  const double widest = f.output_dtype == DType::Float8E4M3FN ? 448 : 57344;
  const QuantizeArgs args = {static_cast<const In*>(operands[kInput].data),
                             static_cast<std::uint8_t*>(operands[kOutput].data), spec_of<Value>(f),
                             f.nibble_order, f.q_min != -widest || f.q_max != widest};
  const cuda::GivenParameters given = {operands[kScale].data,
                                       asymmetric ? operands[kZeroPoint].data : nullptr,
                                       f.scale_dtype, f.zero_point_dtype, f.nibble_order};
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kInput]},
      {&operands[kOutput], is_four_bit(f.output_dtype)},
      {},
      {&operands[kScale]},
      {asymmetric ? &operands[kZeroPoint] : nullptr, is_four_bit(f.zero_point_dtype)}};
  return cuda::launch_elements<Quantize<kCodes>>(args, given, f.shape, f.scope, layout, bound);
}

template <DType kOut>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", cuda::kElement, f.input_dtype);
  return reason.accepted() ? expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype)
                           : reason;
}

template <DType kOut>
constexpr Kernel make_kernel() {
  constexpr bool kWide = std::is_same_v<Value, double>;
  return {
      .op = "quantize",
      .body = "elements",
      .dtypes = kDTypes<cuda::kElement, kOut>,
      .revision = 1,
      .backend = Backend::Cuda,
      .arch = {80},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = kWide ? DType::Float64 : DType::Float32,
                    .rounding = Rounding::NearestEven,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = std::string_view("element by element; correctly rounded quotients; "
                                              "round to nearest even; exact integer sums")},
      .rejects = rejects<kOut>,
      .workspace = no_workspace,
      .prepare = prepare<cuda::codes_of(kOut)>,
      .bind = bind<cuda::codes_of(kOut)>,
  };
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Int8>(),         make_kernel<DType::UInt8>(),
    make_kernel<DType::Int4>(),         make_kernel<DType::UInt4>(),
    make_kernel<DType::Float8E4M3FN>(), make_kernel<DType::Float8E5M2>()};

}  // namespace

}  // namespace planq::quantize
