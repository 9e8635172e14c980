// Element types. What there is to know of one is its FormatInfo in the table below; everything else
// asks that.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/vocabulary.h"

namespace planq {

// What the bits of a number mean. The values are DLPack's type codes.
enum class NumberKind : std::uint8_t {
  Integer = 0,
  Unsigned = 1,
  Ieee = 2,
  BFloat = 4,
  Bool = 6,
  Float8E4M3FN = 10,
  Float8E5M2 = 12,
  Float8E8M0FNU = 14,
  Float6E2M3FN = 15,
  Float6E3M2FN = 16,
  Float4E2M1FN = 17,
};

struct FormatInfo {
  NumberKind kind = NumberKind::Integer;
  std::string_view name, short_name;                   // the short one stands inside a SKU
  int bits = 0;                                        // of a number; DLPack's too
  int per_byte = 1;                                    // numbers that share a byte of memory
  int exponent_bits = 0, mantissa_bits = 0, bias = 0;  // 0 for integers
  double largest = 0;                                  // finite
  bool is_signed = false, has_infinities = false, has_nan = false;

  constexpr bool is_integer() const { return exponent_bits == 0; }
  // The least finite value: two's complement reaches one further than its largest.
  constexpr double lowest() const {
    if (!is_signed) return 0;
    return is_integer() ? -largest - 1 : -largest;
  }
  // Of the smallest normal number.
  constexpr int smallest_exponent() const { return 1 - bias; }
};

// (enumerator, name, short name, kind, bits, numbers per byte, exponent bits, mantissa bits, bias,
//  largest, signed, infinities, NaN). Float8E8M0FNU has powers of two alone, 0 not among them; the
// largest int64 is rounded to a double.
// clang-format off
#define PLANQ_FORMATS(_)                                                                                                        \
  /* a descriptor field that the operator resolves to its default */                                                           \
  _(Unset,         "",               "",     Integer,        0, 1,  0,  0,    0, 0,                       false, false, false) \
  _(Float16,       "float16",        "f16",  Ieee,          16, 1,  5, 10,   15, 65504,                   true,  true,  true)  \
  _(BFloat16,      "bfloat16",       "bf16", BFloat,        16, 1,  8,  7,  127, 0x1.fep127,              true,  true,  true)  \
  _(Float32,       "float32",        "f32",  Ieee,          32, 1,  8, 23,  127, 0x1.fffffep127,          true,  true,  true)  \
  _(Float64,       "float64",        "f64",  Ieee,          64, 1, 11, 52, 1023, 0x1.fffffffffffffp1023,  true,  true,  true)  \
  _(Int8,          "int8",           "s8",   Integer,        8, 1,  0,  0,    0, 127,                     true,  false, false) \
  _(UInt8,         "uint8",          "u8",   Unsigned,       8, 1,  0,  0,    0, 255,                     false, false, false) \
  _(Int4,          "int4",           "s4",   Integer,        4, 2,  0,  0,    0, 7,                       true,  false, false) \
  _(UInt4,         "uint4",          "u4",   Unsigned,       4, 2,  0,  0,    0, 15,                      false, false, false) \
  _(Int32,         "int32",          "s32",  Integer,       32, 1,  0,  0,    0, 0x7fffffff,              true,  false, false) \
  _(Int64,         "int64",          "s64",  Integer,       64, 1,  0,  0,    0, 0x1p63,                  true,  false, false) \
  _(Float8E4M3FN,  "float8_e4m3fn",  "e4m3", Float8E4M3FN,   8, 1,  4,  3,    7, 448,                     true,  false, true)  \
  _(Float8E5M2,    "float8_e5m2",    "e5m2", Float8E5M2,     8, 1,  5,  2,   15, 57344,                   true,  true,  true)  \
  _(Float8E8M0FNU, "float8_e8m0fnu", "e8m0", Float8E8M0FNU,  8, 1,  8,  0,  127, 0x1p127,                 false, false, true)  \
  _(Float6E2M3FN,  "float6_e2m3fn",  "e2m3", Float6E2M3FN,   6, 1,  2,  3,    1, 7.5,                     true,  false, false) \
  _(Float6E3M2FN,  "float6_e3m2fn",  "e3m2", Float6E3M2FN,   6, 1,  3,  2,    3, 28,                      true,  false, false) \
  _(Float4E2M1FN,  "float4_e2m1fn",  "e2m1", Float4E2M1FN,   4, 2,  2,  1,    1, 6,                       true,  false, false) \
  _(Bool,          "bool",           "b8",   Bool,           8, 1,  0,  0,    0, 1,                       false, false, false)
// clang-format on

PLANQ_DEFINE(DType, PLANQ_FORMATS)

#define PLANQ_FORMAT(value, name, brief, kind, ...) \
  FormatInfo{NumberKind::kind, name, brief, __VA_ARGS__},
inline constexpr std::array<FormatInfo, kNames<DType>.size()> kFormats{
    {PLANQ_FORMATS(PLANQ_FORMAT)}};
#undef PLANQ_FORMAT

constexpr const FormatInfo& format_of(DType dtype) {
  return kFormats[static_cast<std::size_t>(dtype)];
}

constexpr std::string_view short_name(DType dtype) { return format_of(dtype).short_name; }
constexpr int bits_of(DType dtype) { return format_of(dtype).bits; }

// What elements are computed in, and what is measured of them.
constexpr DType compute_dtype(DType elements) {
  return elements == DType::Float64 ? DType::Float64 : DType::Float32;
}

// A dtype that is only known at run time is compared with those that the table singles out, because
// device code cannot read the table.
template <bool (*kIs)(const FormatInfo&), std::size_t... kIndex>
constexpr bool is_any(DType dtype, std::index_sequence<kIndex...>) {
  return (
      (std::bool_constant<kIs(kFormats[kIndex])>::value && dtype == static_cast<DType>(kIndex)) ||
      ...);
}
template <bool (*kIs)(const FormatInfo&)>
constexpr bool is_any(DType dtype) {
  return is_any<kIs>(dtype, std::make_index_sequence<kFormats.size()>{});
}
constexpr bool has_four_bits(const FormatInfo& format) { return format.bits == 4; }
constexpr bool is_float8(const FormatInfo& format) {
  return format.bits == 8 && !format.is_integer();
}
constexpr bool is_unsigned_integer(const FormatInfo& format) {
  return format.kind == NumberKind::Unsigned;
}

constexpr bool is_four_bit(DType dtype) { return is_any<has_four_bits>(dtype); }
constexpr bool is_fp8(DType dtype) { return is_any<is_float8>(dtype); }
constexpr bool is_unsigned(DType dtype) { return is_any<is_unsigned_integer>(dtype); }

// The type that memory holds: two 4-bit codes share a byte.
constexpr DType storage_of(DType dtype) {
  return format_of(dtype).per_byte > 1 ? DType::UInt8 : dtype;
}
constexpr int storage_bytes(DType dtype) { return (bits_of(storage_of(dtype)) + 7) / 8; }

}  // namespace planq
