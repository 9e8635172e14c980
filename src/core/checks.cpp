#include "core/checks.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "ops/codebook/codebook.h"

namespace planq::checks {
namespace {

// Whether a finite value is a code: an integer, or exactly representable in the format.
bool is_code(double value, DType dtype) {
  const FormatInfo& format = format_of(dtype);
  if (format.is_integer()) return value == std::nearbyint(value);
  if (value == 0) return true;
  const int exponent = std::max(std::ilogb(value), format.smallest_exponent());
  const double steps = std::ldexp(value, format.mantissa_bits - exponent);
  return steps == std::nearbyint(steps);
}

Fault check_bound(const char* field, double value, DType dtype) {
  const double lowest = format_of(dtype).lowest(), largest = format_of(dtype).largest;
  if (!(value >= lowest && value <= largest))
    return {field, "expected a value in [" + number(lowest) + ", " + number(largest) + "] for " +
                       std::string(name_of(dtype)) + ", got " + number(value)};
  if (!is_code(value, dtype))
    return {field, "expected a value that " + std::string(name_of(dtype)) + " holds exactly, got " +
                       number(value)};
  return {};
}

}  // namespace

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

Fault shape(std::string_view field, const Shape& shape, int smallest_rank) {
  if (shape.rank < smallest_rank || shape.rank > kMaxRank)
    return {std::string(field), "expected " + std::to_string(smallest_rank) + " to " +
                                    std::to_string(kMaxRank) + " axes, got " +
                                    std::to_string(shape.rank)};
  std::int64_t count = 1;
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (shape[axis] < 0)
      return {std::string(field),
              "axis " + std::to_string(axis) + " is negative: " + std::to_string(shape[axis])};
    // Extents of 0 must not hide an overflow among the other axes: strides are products too.
    const std::int64_t extent = shape[axis] > 1 ? shape[axis] : 1;
    if (extent > (std::int64_t{1} << 60) / count)
      return {std::string(field), "more than 2^60 elements"};
    count *= extent;
  }
  return {};
}

Fault dtype(std::string_view field, DType dtype, std::span<const DType> allowed) {
  std::string names;
  for (const DType candidate : allowed) {
    if (candidate == dtype) return {};
    names += (names.empty() ? "" : ", ") + std::string(name_of(candidate));
  }
  return {std::string(field), "expected one of " + names + ", got " + std::string(name_of(dtype))};
}

Fault axis(std::string_view field, std::int64_t& axis, const Shape& shape) {
  if (axis < -shape.rank || axis >= shape.rank)
    return {std::string(field), "axis " + std::to_string(axis) + " is outside a shape of rank " +
                                    std::to_string(shape.rank)};
  if (axis < 0) axis += shape.rank;
  return {};
}

Fault scope(Scope& scope, const Shape& shape, bool pairs) {
  if (scope.kind == ScopeKind::Pair && !pairs)
    return {"scope", "row and column scales are for dequantizing int32 accumulators"};
  if (scope.kind == ScopeKind::Block) {
    scope.axis = 0;
    if (shape.rank < 2)
      return {"scope", "blocks need two axes, got a shape of rank " + std::to_string(shape.rank)};
    if (scope.rows < 1 || scope.size < 1)
      return {"scope", "expected blocks of at least 1 x 1, got " + std::to_string(scope.rows) +
                           " x " + std::to_string(scope.size)};
    return {};
  }
  scope.rows = 0;
  const bool has_axis = scope.kind == ScopeKind::Channel || scope.kind == ScopeKind::Group;
  if (!has_axis) {
    scope.axis = 0;
    scope.size = 0;
    return {};
  }
  std::int64_t normalised = scope.axis;
  if (Fault fault = axis("scope", normalised, shape); !fault.ok()) return fault;
  scope.axis = static_cast<std::int32_t>(normalised);
  if (scope.kind == ScopeKind::Channel) scope.size = 0;
  if (scope.kind == ScopeKind::Group && scope.size < 1)
    return {"scope", "expected a group size of at least 1, got " + std::to_string(scope.size)};
  return {};
}

Fault bounds(DType output, Mode mode, double& q_min, double& q_max) {
  const FormatInfo& format = format_of(output);
  // Symmetric integers leave the lowest code out unless it is asked for.
  const bool mirrored = mode == Mode::Symmetric && !is_fp8(output) && !is_unsigned(output);
  if (std::isnan(q_max)) q_max = format.largest;
  if (std::isnan(q_min)) q_min = mirrored ? -format.largest : format.lowest();
  q_min += 0.0;  // -0 and +0 make equal descriptors, so they must not make different codes
  if (Fault fault = check_bound("q_min", q_min, output); !fault.ok()) return fault;
  if (Fault fault = check_bound("q_max", q_max, output); !fault.ok()) return fault;
  if (mode == Mode::Symmetric && q_max <= 0)
    return {"q_max", "a symmetric range needs q_max > 0, got " + number(q_max)};
  if (q_min >= q_max)
    return {"q_min", "expected q_min < q_max, got " + number(q_min) + " and " + number(q_max)};
  return {};
}

Fault fake_bounds(Mode mode, double& q_min, double& q_max) {
  if (std::isnan(q_max)) q_max = 127;
  if (std::isnan(q_min)) q_min = mode == Mode::Symmetric ? -127 : -128;
  q_min += 0.0;
  const auto inside = [](const char* field, double value) -> Fault {
    if (value >= -128 && value <= 255 && value == std::nearbyint(value)) return {};
    return {field, "expected an integer in [-128, 255], got " + number(value)};
  };
  if (Fault fault = inside("q_min", q_min); !fault.ok()) return fault;
  if (Fault fault = inside("q_max", q_max); !fault.ok()) return fault;
  if (mode == Mode::Symmetric && q_max <= 0)
    return {"q_max", "a symmetric range needs q_max > 0, got " + number(q_max)};
  if (q_min >= q_max)
    return {"q_min", "expected q_min < q_max, got " + number(q_min) + " and " + number(q_max)};
  if (q_max - q_min > 255)
    return {"q_max", "expected at most 256 codes, got " + number(q_max - q_min + 1)};
  return {};
}

Fault integers(Mode mode, DType output) {
  if (mode == Mode::Symmetric || !is_fp8(output)) return {};
  return {"mode", "an asymmetric range needs an integer output_dtype, got " +
                      std::string(name_of(output)) + "; use Mode.SYMMETRIC"};
}

Fault ratio(Mode mode, Quotient quotient) {
  if (mode == Mode::Symmetric || quotient != Quotient::Ratio) return {};
  return {"quotient",
          "RATIO divides by max|x|, which an asymmetric range does not have; use "
          "DIVIDE or RECIPROCAL"};
}

Fault zero_point_dtype(DType code, Mode mode, DType& zero_point) {
  const DType allowed[] = {DType::Int32, code};
  if (zero_point == DType::Unset) zero_point = DType::Int32;
  Fault fault = dtype("zero_point_dtype", zero_point, allowed);
  if (mode == Mode::Symmetric) zero_point = DType::Int32;  // there is none
  return fault;
}

Fault scale_dtype(DType input, DType& scale) {
  if (scale == DType::Unset) scale = compute_dtype(input);
  return dtype("scale_dtype", scale, kFloats);
}

Fault rounding(Rounding rounding) {
  if (rounding != Rounding::None) return {};
  return {"rounding", "expected nearest_even or stochastic, got none"};
}

Fault codebook(std::string_view codes_field, DType codes, Codebook codebook,
               std::int64_t& entries) {
  constexpr DType kCodebookCodes[] = {DType::UInt8, DType::UInt4};
  if (Fault fault = dtype(codes_field, codes, kCodebookCodes); !fault.ok()) return fault;
  const std::int64_t largest = largest_entries(codes);
  const std::string name(name_of(codebook));
  const DType own = codebook == Codebook::Dynamic ? DType::UInt8 : DType::UInt4;
  if (codebook != Codebook::Given && codes != own)
    return {"codebook", name + " goes with " + std::string(codes_field) + " " +
                            std::string(name_of(own)) + ", got " + std::string(name_of(codes))};
  if (entries == 0) entries = largest;
  if (codebook != Codebook::Given && entries != largest)
    return {"entries",
            name + " has " + std::to_string(largest) + " values, got " + std::to_string(entries)};
  if (entries < 2 || entries > largest)
    return {"entries", "expected 2 to " + std::to_string(largest) + " values for " +
                           std::string(name_of(codes)) + ", got " + std::to_string(entries)};
  return {};
}

Fault block_size(std::string_view field, std::int64_t size) {
  if (size >= 1) return {};
  return {std::string(field), "expected at least 1, got " + std::to_string(size)};
}

Fault nested_block_size(std::int64_t size) {
  return size == 0 ? Fault{} : block_size("nested_block_size", size);
}

Fault codebook_quotient(Quotient quotient) {
  if (quotient != Quotient::Ratio) return {};
  return {"quotient",
          "RATIO is of q_max, which a codebook does not have; use RECIPROCAL or DIVIDE"};
}

Fault absmax_dtype(DType output, DType& absmax) {
  constexpr DType kAbsmax[] = {DType::Float32, DType::Float64};
  if (absmax == DType::Unset) absmax = compute_dtype(output);
  if (Fault fault = dtype("absmax_dtype", absmax, kAbsmax); !fault.ok()) return fault;
  if (absmax == DType::Float32 || output == DType::Float64) return {};
  return {"absmax_dtype",
          "float64 goes with output_dtype float64, got " + std::string(name_of(output))};
}

}  // namespace planq::checks
