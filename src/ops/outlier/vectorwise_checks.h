// Checks that the two directions of vectorwise quantization share.
#pragma once

#include <string>

#include "core/checks.h"
#include "ops/outlier/vectorwise.h"
#include "ops/outlier/vocabulary.h"

namespace planq::outlier {

// Normalises the axis. Forms of the whole tensor accept only the last axis, which is the default.
inline Fault check_axis(VectorwiseForm form, const Shape& shape, std::int64_t& axis) {
  if (Fault fault = checks::axis("axis", axis, shape); !fault.ok()) return fault;
  if (!is_whole(form) || axis == shape.rank - 1) return {};
  return {"axis", "form " + std::string(name_of(form)) +
                      " has one statistic for the whole tensor; leave the axis out"};
}

// Sets the default of the type of codes, which the form decides, and checks it.
inline Fault check_codes(const char* field, VectorwiseForm form, DType& codes) {
  const DType own = code_dtype(form);
  if (codes == DType::Unset) codes = own;
  return checks::dtype(field, codes, std::span(&own, 1));
}

}  // namespace planq::outlier
