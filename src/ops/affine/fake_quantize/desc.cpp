#include "ops/affine/fake_quantize/desc.h"

#include <cmath>
#include <string>

#include "core/rows.h"
#include "ops/affine/checks.h"
#include "ops/group/checks.h"

namespace planq::fake_quantize {

namespace {

// What has no meaning for flat groups of 2^b codes.
Fault refuse_segments(const Fields& f) {
  const char* const field = f.scope.kind != ScopeKind::Tensor     ? "scope"
                            : f.scale_dtype != DType::Unset       ? "scale_dtype"
                            : f.zero_point_dtype != DType::Unset  ? "zero_point_dtype"
                            : f.quotient != Quotient::Divide      ? "quotient"
                            : f.nonfinite != NonFinite::Propagate ? "nonfinite"
                            : !f.include_zero                     ? "include_zero"
                                                                  : nullptr;
  if (!field) return {};
  return {field,
          "Convention.DEEPSPEED leaves no choice here: its groups are flat, and their parameters "
          "are its own; leave the field at its default"};
}

// Its asymmetric codes are rounded half away from zero, whatever else is.
Fault resolve_rounding(Fields& f) {
  const bool asymmetric = f.mode == Mode::Asymmetric;
  if (f.rounding == Rounding::Stochastic) return {};
  const Rounding own = asymmetric ? Rounding::NearestAway : Rounding::NearestEven;
  if (f.rounding != own && f.rounding != Rounding::NearestEven)
    return {"rounding", "Convention.DEEPSPEED with Mode." +
                            std::string(asymmetric ? "ASYMMETRIC" : "SYMMETRIC") + " has " +
                            std::string(name_of(own)) + " or stochastic, got " +
                            std::string(name_of(f.rounding))};
  f.rounding = own;
  return {};
}

// Fills the bounds, which follow from the bits.
Fault resolve_bits(Fields& f) {
  if (f.bits == 0) f.bits = 8;
  if (f.bits < 2 || f.bits > 8) return {"bits", "expected 2 to 8, got " + std::to_string(f.bits)};
  const double levels = std::ldexp(1.0, static_cast<int>(f.bits));
  const double lowest = f.mode == Mode::Symmetric ? -levels / 2 : 0, largest = lowest + levels - 1;
  if (std::isnan(f.q_min)) f.q_min = lowest;
  if (std::isnan(f.q_max)) f.q_max = largest;
  const bool low = f.q_min != lowest;
  if (!low && f.q_max == largest) return {};
  return {low ? "q_min" : "q_max", "codes of " + std::to_string(f.bits) +
                                       " bits of Convention.DEEPSPEED are " +
                                       checks::number(lowest) + " to " + checks::number(largest) +
                                       ", got " + checks::number(low ? f.q_min : f.q_max)};
}

Fault resolve_deepspeed(Fields& f) {
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kGroupElements);
      !fault.ok())
    return fault;
  if (f.group_size == 0)
    return {"group_size", "Convention.DEEPSPEED needs the number of elements of a group"};
  if (Fault fault = refuse_segments(f); !fault.ok()) return fault;
  if (Fault fault = resolve_rounding(f); !fault.ok()) return fault;
  if (Fault fault = resolve_bits(f); !fault.ok()) return fault;
  if (std::isnan(f.eps)) f.eps = 1e-5;
  if (!(f.eps >= 0 && f.eps <= 1))
    return {"eps", "expected a number from 0 to 1, got " + checks::number(f.eps)};
  f.eps += 0.0;      // not -0
  f.dynamic = true;  // it knows no other ranges
  return {};
}

Fault resolve_planq(Fields& f) {
  const char* const field = f.bits != 0          ? "bits"
                            : f.group_size != 0  ? "group_size"
                            : !std::isnan(f.eps) ? "eps"
                                                 : nullptr;
  if (field) return {field, "goes with Convention.DEEPSPEED; use q_min, q_max and scope"};
  if (Fault fault = checks::rounding(f.rounding); !fault.ok()) return fault;
  if (f.dynamic && f.zero_point_dtype != DType::Unset && f.zero_point_dtype != DType::Int32)
    return {"zero_point_dtype",
            "a dynamic zero point is int32, got " + std::string(name_of(f.zero_point_dtype))};
  return checks::fake_codes(f);
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kFloats); !fault.ok())
    return fault;
  switch (f.convention) {
    case Convention::Planq:
      return resolve_planq(f);
    case Convention::DeepSpeed:
      return resolve_deepspeed(f);
    default:
      return {"convention",
              "expected planq or deepspeed, got " + std::string(name_of(f.convention))};
  }
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Reason reason = rows::of_draws(f.shape, f.rounding); !reason.accepted()) return reason;
  if (f.convention == Convention::DeepSpeed) return rows::of_pieces(f.shape, f.group_size);
  return f.dynamic ? rows::of_scope(f.shape, f.scope) : Reason::accept();
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"fake_quantize", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::fake_quantize
