// Element types, and the small closed vocabularies that descriptors and guarantees are written in.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace planq {

enum class DType : std::uint8_t {
  Unset,  // a descriptor field that the operator resolves to its default
  Float16,
  BFloat16,
  Float32,
  Float64,
  Int8,
  UInt8,
  Int4,
  UInt4,
  Int32,
  Int64,
  Float8E4M3FN,
  Float8E5M2,
};

enum class ScopeKind : std::uint8_t { Tensor, Channel, Token, Group, Block, Pair };
enum class Mode : std::uint8_t { Symmetric, Asymmetric };
enum class Quotient : std::uint8_t { Divide, Reciprocal, Ratio };
enum class NonFinite : std::uint8_t { Propagate, Saturate };
enum class NibbleOrder : std::uint8_t { LowFirst, HighFirst };
enum class Codebook : std::uint8_t { Given, Dynamic, Nf4, Fp4, Int4, Af4 };
enum class Rounding : std::uint8_t { NearestEven, Stochastic, None };
enum class Backend : std::uint8_t { Host, Cuda };
enum class Determinism : std::uint8_t { NotGuaranteed, RunToRun, GpuToGpu, BitExact };
enum class MathPrecision : std::uint8_t { F32, F64, Int32, None };

// The names that Python, JSON and messages use; the position is the enumerator's value.
template <class E>
inline constexpr std::array<std::string_view, 0> kNames{};
template <>
inline constexpr std::array<std::string_view, 13> kNames<DType>{
    "",     "float16", "bfloat16", "float32", "float64",       "int8",       "uint8",
    "int4", "uint4",   "int32",    "int64",   "float8_e4m3fn", "float8_e5m2"};
template <>
inline constexpr std::array<std::string_view, 6> kNames<ScopeKind>{"tensor", "channel", "token",
                                                                   "group",  "block",   "pair"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<Mode>{"symmetric", "asymmetric"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<Quotient>{"divide", "reciprocal", "ratio"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<NonFinite>{"propagate", "saturate"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<NibbleOrder>{"low_first", "high_first"};
template <>
inline constexpr std::array<std::string_view, 6> kNames<Codebook>{"given", "dynamic", "nf4",
                                                                  "fp4",   "int4",    "af4"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<Rounding>{"nearest_even", "stochastic",
                                                                  "none"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<Backend>{"host", "cuda"};
template <>
inline constexpr std::array<std::string_view, 4> kNames<Determinism>{"not_guaranteed", "run_to_run",
                                                                     "gpu_to_gpu", "bit_exact"};
template <>
inline constexpr std::array<std::string_view, 4> kNames<MathPrecision>{"f32", "f64", "int32",
                                                                       "none"};

template <class E>
constexpr std::string_view name_of(E value) {
  return kNames<E>[static_cast<std::size_t>(value)];
}

// Spelled inside a SKU, where the full name would be too long to read in a table.
constexpr std::string_view short_name(DType dtype) {
  constexpr std::array<std::string_view, 13> names{"",   "f16", "bf16", "f32", "f64",  "s8",  "u8",
                                                   "s4", "u4",  "s32",  "s64", "e4m3", "e5m2"};
  return names[static_cast<std::size_t>(dtype)];
}

constexpr int bits_of(DType dtype) {
  constexpr std::array<int, 13> bits{0, 16, 16, 32, 64, 8, 8, 4, 4, 32, 64, 8, 8};
  return bits[static_cast<std::size_t>(dtype)];
}

// What elements are computed in, and what is measured of them.
constexpr DType compute_dtype(DType elements) {
  return elements == DType::Float64 ? DType::Float64 : DType::Float32;
}

constexpr bool is_four_bit(DType dtype) { return bits_of(dtype) == 4; }
constexpr bool is_fp8(DType dtype) {
  return dtype == DType::Float8E4M3FN || dtype == DType::Float8E5M2;
}
constexpr bool is_unsigned(DType dtype) { return dtype == DType::UInt8 || dtype == DType::UInt4; }

// The type that memory holds: two 4-bit codes share a byte.
constexpr DType storage_of(DType dtype) { return is_four_bit(dtype) ? DType::UInt8 : dtype; }
constexpr int storage_bytes(DType dtype) { return bits_of(storage_of(dtype)) / 8; }

}  // namespace planq
