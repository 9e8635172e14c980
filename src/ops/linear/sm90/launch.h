// Launches of the kernels for 8-bit codes on sm_90a (wgmma). They take gemms with k innermost in
// both operands. What TMA cannot read goes to launch_sm80, which has the same bits.
#pragma once

#include "core/bound.h"
#include "core/device.h"
#include "core/rejects.h"
#include "ops/linear/gemm.h"
#include "ops/linear/sm90/bodies.h"
#include "ops/linear/vocabulary.h"

namespace planq::linear {

Status preload_sm90();
Status launch_sm90(const Gemm& gemm, sm90::Body body, const Device& device, Bound& bound);

// Why a descriptor is not for these kernels. Addresses and strides are known in a call alone, so
// launch_sm90 decides about these.
inline Reason rejects_wgmma(const OperandField& input, const OperandField& weight,
                            DType output_dtype) {
  const auto eight_bit = [](DType dtype) { return dtype == DType::Int8 || dtype == DType::UInt8; };
  if (!eight_bit(input.dtype) || !eight_bit(weight.dtype))
    return Reason::refuse(ReasonKind::DType, "computes codes of 8 bits, not ", name_of(input.dtype),
                          " and ", name_of(weight.dtype));
  if (output_dtype == DType::Int8)
    return Reason::refuse(ReasonKind::DType, "has no output_dtype int8");
  if (input.transposed || weight.transposed)
    return Reason::refuse(ReasonKind::Feature, "reads both sides along k");
  if (input.terms() % 16 != 0)
    return Reason::refuse(ReasonKind::Shape, "reads rows of whole vectors of 16 codes");
  return Reason::accept();
}

}  // namespace planq::linear
