// Plans and bound launches as C programs hold them.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "bindings/c/planq.h"
#include "core/plan.h"

namespace planq::c {

// A plan, and the operands that its calls are read into: one is made with the plan, more by calls
// that go on at the same time, and all are kept for the next.
class SharedPlan {
 public:
  SharedPlan(const Stream& stream, const Descriptor& descriptor, const Preference& preference);
  // A plan that was foreseen for a device, which nothing runs on.
  SharedPlan(const Device& device, const Descriptor& descriptor, const Preference& preference);
  ~SharedPlan();
  SharedPlan(const SharedPlan&) = delete;
  SharedPlan& operator=(const SharedPlan&) = delete;

  const Plan& plan() const { return plan_; }
  // Throws where the plan was foreseen.
  const Plan& runnable() const;

 private:
  friend class CallLease;
  std::unique_ptr<CallOperands> take();
  void put(std::unique_ptr<CallOperands> call);

  Plan plan_;
  std::array<std::atomic<CallOperands*>, 16> idle_{};
};

// Operands for the duration of a call.
class CallLease {
 public:
  explicit CallLease(SharedPlan& plan) : plan_(plan), call_(plan.take()) {}
  ~CallLease() { plan_.put(std::move(call_)); }
  CallLease(const CallLease&) = delete;
  CallLease& operator=(const CallLease&) = delete;

  CallOperands& operator*() { return *call_; }

 private:
  SharedPlan& plan_;
  std::unique_ptr<CallOperands> call_;
};

struct BoundLaunch {
  std::shared_ptr<SharedPlan> plan;
  Bound bound;
};

Stream read_stream(const planq_stream* stream);
Device read_device(const planq_device* device);
// What planq.h says of a device that has this name. Throws where none has.
planq_device device_named(std::string_view name);
// What an operand of a plan has to be, or a member of a list, with these extents of the dims.
planq_operand_info operand_info(const Plan& plan, const Extents& extents, std::size_t index,
                                std::size_t member);
// Throws where the stream is not one of the plan's device.
void check_stream(const Plan& plan, const Stream& stream);

// Reads the operands of a call and checks everything that a launch depends on but the workspace.
// `storage` as in actual_of().
Actual read_operands(const Plan& plan, std::span<const planq_operand> given, CallOperands& call,
                     Descriptor& storage);
// Throws where the workspace will not do for the operands.
void check_workspace(const Plan& plan, const Actual& actual, CallOperands& call,
                     const Workspace& workspace);

// Makes the plan that a text records. Throws where this build selects another.
std::shared_ptr<SharedPlan> restore(const Stream& stream, std::string_view text);

}  // namespace planq::c
