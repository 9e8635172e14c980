// What wrong sums and maxima of float32 read: a serial loop over all elements, in one call.
#pragma once

#include "ops/statistics/sums.h"
#include "wrong.h"

namespace planq::wrong {

struct Elements {
  ElementLayout layout;
  const float* input;
  float* output;
  std::int64_t elements, count = 1;
  int workers;

  Elements(const Call& call, const Shape& shape, int given_workers)
      : layout(element_layout(shape, Scope{}, {ElementOperand{&call.operands[0]}})),
        input(static_cast<const float*>(call.operands[0].data)),
        output(static_cast<float*>(call.operands[1].data)),
        elements(layout.elements()),
        workers(given_workers) {}

  PLANQ_HD float element(std::int64_t i) const { return input[element_at(layout, i).at[0]]; }
  PLANQ_HD void store(float measured) const { *output = stored_measure(measured); }
};

}  // namespace planq::wrong
