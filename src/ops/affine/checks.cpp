#include "ops/affine/checks.h"

#include <algorithm>
#include <cmath>
#include <string>

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
  if (mode == Mode::Symmetric || format_of(output).is_integer()) return {};
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

}  // namespace planq::checks
