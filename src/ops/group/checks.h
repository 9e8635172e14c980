// Checks that the descriptors of the group operators share.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/checks.h"

namespace planq::checks {

inline constexpr DType kGroupElements[] = {DType::Float16, DType::BFloat16, DType::Float32};

Fault group_size(std::int64_t size);
// Whether convention, codes and mode go together. `codes_field`: what the codes' type is called.
Fault group_convention(Convention convention, Mode mode, std::string_view codes_field, DType codes);
// What error feedback asks of beta, NaN if there is none, and of the type of errors.
Fault error_feedback(double& beta, DType errors);

}  // namespace planq::checks
