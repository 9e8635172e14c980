#include "ops/group/checks.h"

#include <cmath>
#include <string>

namespace planq::checks {

Fault group_size(std::int64_t size) {
  if (size >= 1) return {};
  return {"group_size", "expected at least 1, got " + std::to_string(size)};
}

Fault group_convention(Convention convention, Mode mode, std::string_view codes_field,
                       DType codes) {
  constexpr DType kSigned[] = {DType::Int8, DType::Int4};
  constexpr DType kUnsigned[] = {DType::UInt8, DType::UInt4};
  if (convention == Convention::DeepSpeed) return dtype(codes_field, codes, kSigned);
  if (convention != Convention::DeepSpeedIntx)
    return {"convention",
            "expected deepspeed or deepspeed_intx, got " + std::string(name_of(convention))};
  if (mode != Mode::Asymmetric)
    return {"mode", "Convention.DEEPSPEED_INTX goes with Mode.ASYMMETRIC"};
  return dtype(codes_field, codes, kUnsigned);
}

Fault error_feedback(double& beta, DType errors) {
  constexpr DType kErrors[] = {DType::Float32, DType::Float16};
  if (Fault fault = dtype("error_dtype", errors, kErrors); !fault.ok()) return fault;
  if (std::isnan(beta)) {
    if (errors == DType::Float32) return {};
    return {"error_dtype", std::string(name_of(errors)) + " goes with error_feedback"};
  }
  beta += 0.0;  // -0 and +0 make equal descriptors
  if (beta >= 0 && beta < 1) return {};
  return {"error_feedback", "expected a value of at least 0 and below 1, got " + number(beta)};
}

}  // namespace planq::checks
