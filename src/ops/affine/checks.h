// Checks that the descriptors of several affine operators share.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/checks.h"

namespace planq::checks {

inline constexpr DType kCodes[] = {DType::Int8,  DType::UInt8,        DType::Int4,
                                   DType::UInt4, DType::Float8E4M3FN, DType::Float8E5M2};

// Normalises the negative axis of a scope. `pairs`: Pair is allowed, which dequantize alone takes.
Fault scope(Scope& scope, const Shape& shape, bool pairs = false);
// Fills q_min and q_max by the code's dtype and the mode; checks that both are codes.
Fault bounds(DType output, Mode mode, double& q_min, double& q_max);
// The same for codes that are not stored: at most 256 integers in [-128, 255].
Fault fake_bounds(Mode mode, double& q_min, double& q_max);
// An asymmetric range goes with integers alone.
Fault integers(Mode mode, DType output);
// RATIO goes with a symmetric range alone.
Fault ratio(Mode mode, Quotient quotient);
// Fills zero_point_dtype: int32 unless it is the codes' own type, which only integers have.
Fault zero_point_dtype(DType code, Mode mode, DType& zero_point);
// Fills scale_dtype: float64 for float64 inputs, float32 otherwise.
Fault scale_dtype(DType input, DType& scale);

// What quantize and its gradient ask of the fields that they share: codes of the output's type.
template <class Fields>
Fault given_codes(Fields& f) {
  if (Fault fault = dtype("output_dtype", f.output_dtype, kCodes); !fault.ok()) return fault;
  if (Fault fault = scope(f.scope, f.shape); !fault.ok()) return fault;
  if (Fault fault = integers(f.mode, f.output_dtype); !fault.ok()) return fault;
  if (Fault fault = ratio(f.mode, f.quotient); !fault.ok()) return fault;
  if (Fault fault = bounds(f.output_dtype, f.mode, f.q_min, f.q_max); !fault.ok()) return fault;
  if (Fault fault = zero_point_dtype(f.output_dtype, f.mode, f.zero_point_dtype); !fault.ok())
    return fault;
  return scale_dtype(f.input_dtype, f.scale_dtype);
}

// The same for fake quantization, whose codes are integers of at most 8 bits that nobody stores.
template <class Fields>
Fault fake_codes(Fields& f) {
  if (Fault fault = scope(f.scope, f.shape); !fault.ok()) return fault;
  if (Fault fault = ratio(f.mode, f.quotient); !fault.ok()) return fault;
  if (Fault fault = fake_bounds(f.mode, f.q_min, f.q_max); !fault.ok()) return fault;
  constexpr DType kZeroPoints[] = {DType::Int32, DType::Int8, DType::UInt8};
  if (f.zero_point_dtype == DType::Unset) f.zero_point_dtype = DType::Int32;
  if (Fault fault = dtype("zero_point_dtype", f.zero_point_dtype, kZeroPoints); !fault.ok())
    return fault;
  if (f.mode == Mode::Symmetric) f.zero_point_dtype = DType::Int32;  // there is none
  return scale_dtype(f.input_dtype, f.scale_dtype);
}

}  // namespace planq::checks
