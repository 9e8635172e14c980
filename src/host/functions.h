// The functions of math/functions.h on arrays.
#pragma once

#include <cstdint>

#include "core/api.h"
#include "math/functions.h"

namespace planq::host {

// Writes what a function has for each number over that number; a NaN becomes the canonical one.
using FunctionLoop = void (*)(float* values, std::int64_t count);

// The loop of the widest instruction set.
FunctionLoop function_loop(math::Function function);

// sin_turn and cos_turn of the same phases.
void sines_and_cosines(const std::uint32_t* phases, std::int64_t count, float* sines,
                       float* cosines) PLANQ_API(sines_and_cosines);

}  // namespace planq::host
