// Checks that the descriptors of several operators share, with the sentences they answer. A check
// that has a default to offer fills the field in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/descriptor.h"
#include "core/status.h"

namespace planq::checks {

inline constexpr DType kFloats[] = {DType::Float16, DType::BFloat16, DType::Float32,
                                    DType::Float64};
inline constexpr DType kCodes[] = {DType::Int8,  DType::UInt8,        DType::Int4,
                                   DType::UInt4, DType::Float8E4M3FN, DType::Float8E5M2};

// As messages spell it: every digit that tells it from its neighbours.
std::string number(double value);

// Rank between smallest_rank and 8, no negative extent, at most 2^60 elements.
Fault shape(std::string_view field, const Shape& shape, int smallest_rank);
Fault dtype(std::string_view field, DType dtype, std::span<const DType> allowed);
// Normalises a negative axis.
Fault axis(std::string_view field, std::int64_t& axis, const Shape& shape);
// Likewise that of a scope. No operator but dequantize has row and column scales, so Pair is its
// own to allow.
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

// Codes are made to the nearest or by a draw.
Fault rounding(Rounding rounding);
// Fills entries: as many as the codes can tell apart. Checks that codebook and codes go together.
Fault codebook(std::string_view codes_field, DType codes, Codebook codebook, std::int64_t& entries);
Fault block_size(std::string_view field, std::int64_t size);
// 0: there are no nested statistics.
Fault nested_block_size(std::int64_t size);
// RATIO is no way to find a place in a codebook.
Fault codebook_quotient(Quotient quotient);
// Fills absmax_dtype: float64 for float64 outputs, which may have float32 as well.
Fault absmax_dtype(DType output, DType& absmax);

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

// What both ways to make codes by a codebook ask.
template <class Fields>
Fault codebook_codes(Fields& f) {
  if (Fault fault = shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = dtype("input_dtype", f.input_dtype, kFloats); !fault.ok()) return fault;
  if (Fault fault = codebook("output_dtype", f.output_dtype, f.codebook, f.entries); !fault.ok())
    return fault;
  if (Fault fault = codebook_quotient(f.quotient); !fault.ok()) return fault;
  return rounding(f.rounding);
}

// What both ways back ask.
template <class Fields>
Fault codebook_values(Fields& f) {
  if (Fault fault = shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = codebook("input_dtype", f.input_dtype, f.codebook, f.entries); !fault.ok())
    return fault;
  if (Fault fault = dtype("output_dtype", f.output_dtype, kFloats); !fault.ok()) return fault;
  return absmax_dtype(f.output_dtype, f.absmax_dtype);
}

}  // namespace planq::checks
