// What the kernels of grouped_linear guarantee, by the type of the input.
#pragma once

#include "ops/linear/grouped_linear/desc.h"
#include "ops/linear/tables/float_kernels.h"
#include "ops/linear/tables/int_kernels.h"

namespace planq::grouped_linear {

// As tables/int_kernels.h wants it.
struct IntegerLayer {
  static constexpr bool kHasScales = true;
};

template <DType kIn>
constexpr Guarantee guarantee_of() {
  if constexpr (kIn == DType::Int8)
    return linear::kIntGuarantee<IntegerLayer>;
  else
    return linear::kFloatGuarantee<accumulation_of(kIn), kIn>;
}

}  // namespace planq::grouped_linear
