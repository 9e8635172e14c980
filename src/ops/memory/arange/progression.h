// Element i of a progression, for both backends. Of a float type fl(start +
// fl(step i)) in float64, rounded once more to the type.
#pragma once

#include "ops/memory/arange/desc.h"
#include "ops/memory/numbers.h"

namespace planq::arange {

template <DType kType>
struct Progression {
  using Number = memory::Given<kType>;
  using Exact = typename Number::Exact;

  Exact start, step;

  PLANQ_HD typename memory::Number<kType>::Memory at(std::int64_t i) const {
    return Number::stored(start + step * static_cast<Exact>(i));
  }
};

// The numbers that a progression is made of, wherever they are.
template <DType kType>
struct Ends {
  memory::Given<kType> start, step;

  explicit Ends(const Operands& operands) : start(operands[kStart]), step(operands[kStep], 1) {}
  PLANQ_HD Progression<kType> get() const { return {start.get(), step.get()}; }
};

template <DType kType>
constexpr Guarantee kGuarantee =
    memory::is_integer(kType) ? memory::kElementGuarantee<MathPrecision::None, DType::Int64, false>
                              : memory::kElementGuarantee<MathPrecision::F64, DType::Float64, true>;

}  // namespace planq::arange
