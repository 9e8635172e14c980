// Scales as other libraries apply them to the accumulators of integer products, and bitsandbytes to
// int8 codes: scalar functions that both backends call.
#pragma once

#include "math/ieee.h"

namespace planq::math {

// bitsandbytes' 1 / 127^2 and 1 / 127, in every compute type.
inline constexpr float kInverseSquare = 0x1.040c2p-14f;
inline constexpr float kInverse = 0x1.020408p-7f;

// Without a bias, it is +0: a product of -0 then becomes +0.
template <class C>
PLANQ_HD C bitsandbytes_value(C accumulator, C row, C column, C bias) {
  return fused(accumulator * row * column, static_cast<C>(kInverseSquare), bias);
}
template <class C>
PLANQ_HD C bitsandbytes_code_value(C code, C absmax) {
  return code * absmax * static_cast<C>(kInverse);
}

template <class C>
PLANQ_HD C baracuda_value(C accumulator, C row, C column) {
  return row * column * accumulator;
}

}  // namespace planq::math
