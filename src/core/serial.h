// Descriptors, preferences, plans and selections as JSON: the same values in every language.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/json.h"
#include "core/plan.h"
#include "core/registry.h"
#include "core/select.h"

namespace planq {

// Reads and resolves a descriptor from an object with the operator's name under "op".
Fault read_descriptor(const Json& values, Descriptor& descriptor);
Fault read_preference(const Json& values, Preference& preference);

Json descriptor_json(const Descriptor& descriptor) PLANQ_API(descriptor_json);
Json preference_json(const Preference& preference) PLANQ_API(preference_json);
// With the number of terms that its descriptor says.
Json guarantee_json(const Plan& plan);
// What each operand has to be; those that the descriptor rules out are left out.
Json operands_json(const Descriptor& descriptor);
// What a stored plan holds, and is compared by.
Json plan_json(const Plan& plan) PLANQ_API(plan_json);
Json selection_json(const Descriptor& descriptor, const Selection& selection);
// The bodies of one SKU in order of preference, with what became of each.
Json bodies_json(const Operator& op, std::span<const Candidate> bodies);
// Every operator with its fields, its operands and its kernels.
Json operators_json();

}  // namespace planq
