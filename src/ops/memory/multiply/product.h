// What the kernels of both backends know of a call, and promise.
#pragma once

#include "core/elementwise.h"
#include "ops/memory/multiply/desc.h"
#include "ops/memory/numbers.h"

namespace planq::multiply {

inline ElementLayout layout_of(const Call& call) {
  const Operands& given = call.operands;
  return element_layout(call.fields<Fields>().shape, Scope{},
                        {ElementOperand{&given[kInput]}, ElementOperand{&given[kOther]},
                         ElementOperand{&given[kOutput]}});
}

template <DType kType>
constexpr Guarantee kGuarantee =
                        memory::is_integer(kType)
                            ? memory::kElementGuarantee<MathPrecision::None, DType::Int64, false>
                        : memory::kElementGuarantee < kType == DType::Float64 ? MathPrecision::F64
                                                                              : MathPrecision::F32,
                    compute_dtype(kType), true > ;

template <DType kType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kType, descriptor.as<Fields>().input_dtype);
}

}  // namespace planq::multiply
