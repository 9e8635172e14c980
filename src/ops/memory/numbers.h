// Numbers of every element type that operators take, one to an element of
// memory: what is stored of a computed one, and products. Both backends call
// these; docs/numerics/memory.md has the rules.
//
// The family uses affine's floor for the values of fp8 codes.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include "core/registry.h"
#include "core/rejects.h"
#include "core/scalar.h"
#include "math/formats.h"
#include "ops/affine/affine.h"

namespace planq::memory {

// 4-bit codes are bytes of two, which these operators know as uint8.
inline constexpr DType kElements[] = {
    DType::Float16, DType::BFloat16, DType::Float32, DType::Float64,      DType::Int8,
    DType::UInt8,   DType::Int32,    DType::Int64,   DType::Float8E4M3FN, DType::Float8E5M2};

constexpr bool is_integer(DType elements) { return format_of(elements).is_integer(); }
// What fill and arange are told, and compute in.
constexpr DType scalar_dtype(DType elements) {
  return is_integer(elements) ? DType::Int64 : DType::Float64;
}
constexpr Rule scalar_dtype(const char* elements) {
  return when(is(elements, is_integer), DType::Int64, DType::Float64);
}

// Integers are computed modulo 2^bits, in which signs make no difference.
template <DType kType>
struct Number {
  static constexpr int kBits = bits_of(kType);
  static constexpr bool kIsInteger = is_integer(kType);
  using Memory = std::conditional_t<
      kBits == 8, std::uint8_t,
      std::conditional_t<kBits == 16, std::uint16_t,
                         std::conditional_t<kBits == 32, std::uint32_t, std::uint64_t>>>;
  using C = std::conditional_t<kType == DType::Float64, double, float>;

  PLANQ_HD static C value(Memory bits) {
    if constexpr (kBits == 8)
      return math::float8_value<C>(bits, kType);
    else
      return math::widen(math::bit_cast<math::Stored<kType>>(bits));
  }

  // One rounding, to nearest even. A NaN is the canonical one; fp8 saturates,
  // the others overflow to infinity.
  template <class From>
  PLANQ_HD static Memory stored(From x) {
    if constexpr (kType == DType::Float16) {
      return math::to_half(x).bits;
    } else if constexpr (kType == DType::BFloat16) {
      return math::to_bfloat16(x).bits;
    } else if constexpr (kBits == 8) {
      constexpr From kLargest = static_cast<From>(format_of(kType).largest);
      return math::is_nan(x) ? Memory{0x7F} : math::fp8_code(x, -kLargest, kLargest, kType);
    } else {
      return math::bit_cast<Memory>(math::narrow<C>(static_cast<C>(x)));
    }
  }

  PLANQ_HD static Memory product(Memory a, Memory b) {
    if constexpr (kIsInteger)
      return static_cast<Memory>(std::uint64_t{a} * b);
    else
      return stored(value(a) * value(b));
  }
};

// A number that the caller gives, by value or in memory.
template <DType kType>
struct Given {
  using Own = Number<kType>;
  using Exact = std::conditional_t<Own::kIsInteger, std::uint64_t, double>;
  using Scalar = std::conditional_t<Own::kIsInteger, IntegerScalar, RealScalar>;

  Scalar scalar;

  explicit Given(const OperandView& view, int otherwise = 0) {
    if constexpr (Own::kIsInteger)
      scalar = view.dtype == DType::Unset ? IntegerScalar{nullptr, otherwise} : integer_of(view);
    else
      scalar = real_of(view, otherwise);
  }
  PLANQ_HD Exact get() const { return static_cast<Exact>(scalar.get()); }

  PLANQ_HD static typename Own::Memory stored(Exact number) {
    if constexpr (Own::kIsInteger)
      return static_cast<typename Own::Memory>(number);
    else
      return Own::stored(number);
  }
};

template <MathPrecision kMath, DType kAccumulator, bool kRounds>
constexpr Guarantee kElementGuarantee = {
    .determinism = Determinism::BitExact,
    .math = kMath,
    .accumulator = kAccumulator,
    .rounding = kRounds ? Rounding::NearestEven : Rounding::None,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = "each element alone, by IEEE operations or modulo 2^bits"};

// Fields has output_dtype.
template <class Fields, DType kType>
Reason rejects_other_output(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "output_dtype", kType, descriptor.as<Fields>().output_dtype);
}

// The kernels of an operator, by make(std::integral_constant<DType, type>{}) of
// each type.
template <class Make>
constexpr auto kernels_of_all(const Make& make) {
  return []<std::size_t... kPlaces>(const Make& own, std::index_sequence<kPlaces...>) {
    return std::array<Kernel, sizeof...(kPlaces)>{
        own(std::integral_constant<DType, kElements[kPlaces]>{})...};
  }(make, std::make_index_sequence<std::size(kElements)>{});
}

}  // namespace planq::memory
