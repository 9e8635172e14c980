// The functions of planq.h: what each has to be given, and which part of the library answers.
#pragma GCC visibility push(default)
#include "bindings/c/planq.h"
#pragma GCC visibility pop

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "bindings/c/errors.h"
#include "bindings/c/handles.h"
#include "bindings/c/plan.h"
#include "core/messages.h"
#include "core/serial.h"

namespace planq::c {
namespace {

constinit Handles<SharedPlan, 1> plans("plan");
constinit Handles<BoundLaunch, 2> launches("launch");

// As `PlanqError.code` of the Python package; the place is the number.
constexpr const char* kCodes[] = {"ok",        "descriptor", "no_kernel",     "argument",
                                  "workspace", "stream",     "plan_mismatch", "cuda",
                                  "handle",    "buffer",     "memory",        "internal"};

void copy_text(const std::string& text, char* buffer, std::size_t capacity, std::size_t* size) {
  const std::size_t needed = text.size() + 1;
  if (size) *size = needed;
  if (!buffer && capacity == 0) return check_given(size, "size");
  check_given(buffer, "buffer");
  if (capacity < needed)
    refuse(PLANQ_ERROR_BUFFER, "buffer: expected at least " + std::to_string(needed) +
                                   " bytes, got " + std::to_string(capacity));
  std::memcpy(buffer, text.c_str(), needed);
}

// A text that is made of a plan.
template <class Make>
planq_code plan_text(planq_plan handle, char* buffer, std::size_t capacity, std::size_t* size,
                     const Make& make) {
  return guarded([&] { copy_text(make(plans.pin(handle)->plan()), buffer, capacity, size); });
}

Json parsed(const char* text, const char* field) {
  Json values;
  std::string fault;
  if (!parse_json(text, values, fault)) refuse(Fault{field, fault});
  return values;
}

// For a stream, or for a device alone.
template <class Place>
std::shared_ptr<SharedPlan> select(const Place& place, const char* desc, const char* pref) {
  Descriptor descriptor;
  Preference preference;
  check_ok(read_descriptor(parsed(desc, "op"), descriptor));
  if (pref) check_ok(read_preference(parsed(pref, "preference"), preference));
  return std::make_shared<SharedPlan>(place, descriptor, preference);
}

// Those of a call; with none the largest.
Extents read_extents(const Plan& plan, const planq_extent* given, std::size_t count) {
  if (count == 0) return largest_extents(plan);
  check_given(given, "extents", "an array");
  Extents extents;
  if (count != static_cast<std::size_t>(plan.dims))
    refuse(ArgumentFailure{"extents", "one for each of " + std::to_string(plan.dims) + " Dims",
                           std::to_string(count), ""});
  for (std::size_t i = 0; i < count; ++i) {
    check_given(given[i].name, "extents", "names");
    const auto& dims = plan.descriptor.extras->dims;
    std::size_t at = 0;
    while (at < dims.size() && std::string_view(dims[at].name.data()) != given[i].name) ++at;
    if (at == dims.size() || extents.at[at] >= 0)
      refuse(ArgumentFailure{"extents", "each Dim of the plan once",
                             shown(Json::text(given[i].name)), ""});
    check_ok(check_extent(dims[at], given[i].value));
    extents.at[at] = given[i].value;
  }
  return extents;
}

std::size_t workspace_of(const Plan& plan, const planq_extent* given, std::size_t count) {
  if (count == 0) return plan.workspace;
  Descriptor storage;
  return actual_of(plan, read_extents(plan, given, count), storage).workspace;
}

std::string bodies_text(const Plan& plan, const planq_extent* given, std::size_t count) {
  const Extents extents = read_extents(plan, given, count);
  Descriptor storage;
  return dump(bodies_json(*plan.descriptor.op, bodies_of(plan, extents, storage)));
}

}  // namespace
}  // namespace planq::c

using namespace planq;
using namespace planq::c;

const char* planq_code_name(planq_code code) {
  return code >= 0 && code < static_cast<planq_code>(std::size(kCodes)) ? kCodes[code] : "unknown";
}
const char* planq_last_error(void) { return last_error(); }
const char* planq_version(void) { return build_info().version.data(); }
const char* planq_build_id(void) { return build_info().build_id.data(); }
const char* planq_source_id(void) { return build_info().source_id.data(); }

planq_code planq_operators(char* buffer, size_t capacity, size_t* size) {
  return guarded([&] { copy_text(dump(operators_json()), buffer, capacity, size); });
}

planq_code planq_select(const planq_stream* stream, const char* descriptor, const char* preference,
                        planq_plan* plan) {
  return guarded([&] {
    check_given(descriptor, "descriptor", "JSON");
    check_given(plan, "plan");
    *plan = plans.add(c::select(read_stream(stream), descriptor, preference));
  });
}

planq_code planq_device_named(const char* name, planq_device* device) {
  return guarded([&] {
    check_given(name, "name", "a text");
    check_given(device, "device");
    *device = device_named(name);
  });
}

planq_code planq_foresee(const planq_device* device, const char* descriptor, const char* preference,
                         planq_plan* plan) {
  return guarded([&] {
    check_given(descriptor, "descriptor", "JSON");
    check_given(plan, "plan");
    *plan = plans.add(c::select(read_device(device), descriptor, preference));
  });
}

planq_code planq_plan_from_json(const planq_stream* stream, const char* text, planq_plan* plan) {
  return guarded([&] {
    check_given(text, "text", "JSON");
    check_given(plan, "plan");
    *plan = plans.add(restore(read_stream(stream), text));
  });
}

planq_code planq_plan_retain(planq_plan plan) {
  return guarded([&] { plans.retain(plan); });
}
planq_code planq_plan_release(planq_plan plan) {
  return guarded([&] { plans.release(plan); });
}

planq_code planq_plan_sku(planq_plan plan, char* buffer, size_t capacity, size_t* size) {
  return plan_text(plan, buffer, capacity, size,
                   [](const Plan& made) { return std::string(made.kernel->sku.view()); });
}
planq_code planq_plan_to_json(planq_plan plan, char* buffer, size_t capacity, size_t* size) {
  return plan_text(plan, buffer, capacity, size,
                   [](const Plan& made) { return dump(plan_json(made)); });
}
planq_code planq_plan_guarantee(planq_plan plan, char* buffer, size_t capacity, size_t* size) {
  return plan_text(plan, buffer, capacity, size,
                   [](const Plan& made) { return dump(guarantee_json(made)); });
}
planq_code planq_plan_operands(planq_plan plan, char* buffer, size_t capacity, size_t* size) {
  return plan_text(plan, buffer, capacity, size,
                   [](const Plan& made) { return dump(operands_json(made.descriptor)); });
}

planq_code planq_plan_count_operands(planq_plan plan, size_t* count) {
  return guarded([&] {
    check_given(count, "count");
    const auto pinned = plans.pin(plan);
    const auto& specs = pinned->plan().specs;
    *count = static_cast<std::size_t>(std::count_if(
        specs.begin(), specs.end(), [](const OperandSpec& spec) { return spec.present; }));
  });
}
planq_code planq_plan_operand(planq_plan plan, size_t index, size_t member,
                              const planq_extent* extents, size_t count, planq_operand_info* info) {
  return guarded([&] {
    check_given(info, "info");
    const auto pinned = plans.pin(plan);
    const Plan& made = pinned->plan();
    *info = operand_info(made, read_extents(made, extents, count), index, member);
  });
}

planq_code planq_plan_explain(planq_plan plan, char* buffer, size_t capacity, size_t* size) {
  return plan_text(plan, buffer, capacity, size, [](const Plan& made) {
    return dump(selection_json(made.descriptor,
                               planq::select(made.descriptor, made.preference, made.device)));
  });
}

planq_code planq_plan_workspace_size(planq_plan plan, const planq_extent* extents, size_t count,
                                     size_t* bytes) {
  return guarded([&] {
    check_given(bytes, "bytes");
    *bytes = workspace_of(plans.pin(plan)->plan(), extents, count);
  });
}

planq_code planq_plan_bodies(planq_plan plan, const planq_extent* extents, size_t count,
                             char* buffer, size_t capacity, size_t* size) {
  return plan_text(plan, buffer, capacity, size,
                   [&](const Plan& made) { return bodies_text(made, extents, count); });
}

planq_code planq_can_implement(planq_plan plan, const planq_operand* operands, size_t count) {
  return guarded([&] {
    const auto pinned = plans.pin(plan);
    const Plan& made = pinned->runnable();
    CallLease call(*pinned);
    Descriptor storage;
    read_operands(made, {operands, count}, *call, storage);
  });
}

planq_code planq_run(planq_plan plan, const planq_stream* stream, void* workspace,
                     size_t workspace_bytes, const planq_operand* operands, size_t count) {
  return guarded([&] {
    const auto pinned = plans.pin(plan);
    const Plan& made = pinned->runnable();
    const Stream target = read_stream(stream);
    check_stream(made, target);
    CallLease call(*pinned);
    Descriptor storage;
    const Actual actual = read_operands(made, {operands, count}, *call, storage);
    const Workspace memory{static_cast<std::byte*>(workspace), workspace_bytes};
    check_workspace(made, actual, *call, memory);
    Bound bound(target);
    check(planq::bind(made, actual, (*call).views(), memory, target, bound), made.kernel->sku);
  });
}

planq_code planq_bind(planq_plan plan, void* workspace, size_t workspace_bytes,
                      const planq_operand* operands, size_t count, planq_launch* launch) {
  return guarded([&] {
    check_given(launch, "launch");
    const auto pinned = plans.pin(plan);
    const Plan& made = pinned->runnable();
    CallLease call(*pinned);
    Descriptor storage;
    const Actual actual = read_operands(made, {operands, count}, *call, storage);
    const Workspace memory{static_cast<std::byte*>(workspace), workspace_bytes};
    check_workspace(made, actual, *call, memory);
    Stream target;
    target.backend = made.device.backend;
    target.device = made.device.index;
    auto bound = std::make_shared<BoundLaunch>();
    bound->plan = pinned.shared();
    check(planq::bind(made, actual, (*call).views(), memory, target, bound->bound),
          made.kernel->sku);
    *launch = launches.add(std::move(bound));
  });
}

planq_code planq_launch_run(planq_launch launch, const planq_stream* stream) {
  return guarded([&] {
    const auto pinned = launches.pin(launch);
    const Plan& made = pinned->plan->plan();
    const Stream target = read_stream(stream);
    check_stream(made, target);
    check(planq::launch(pinned->bound, target), made.kernel->sku);
  });
}

planq_code planq_launch_body(planq_launch launch, char* buffer, size_t capacity, size_t* size) {
  return guarded(
      [&] { copy_text(std::string(launches.pin(launch)->bound.body()), buffer, capacity, size); });
}

planq_code planq_launch_retain(planq_launch launch) {
  return guarded([&] { launches.retain(launch); });
}
planq_code planq_launch_release(planq_launch launch) {
  return guarded([&] { launches.release(launch); });
}
