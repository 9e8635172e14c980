// The operands of a call as Python gave them. A plan keeps those that no call uses, so that a run
// takes nothing from the heap: one is made with the plan, more by runs that go on at the same time.
#pragma once

#include <memory>
#include <vector>

#include "bindings/python/ref.h"
#include "core/operands.h"
#include "core/plan.h"

namespace planq::python {

// Of an operand, or of a member of a list: the object, and what it exported.
struct Held {
  Ref object, exported;

  void release() {
    object = Ref();
    exported = Ref();
  }
};

// The operands of a call, and what keeps their memory until it is done.
struct Given {
  explicit Given(const Plan& plan)
      : operands(plan), held(plan.specs.size()), held_members(operands.count_members()) {}

  // What releases an object may run Python code, and so another call of the plan.
  void clear() {
    for (Held& one : held) one.release();
    for (Held& one : held_members) one.release();
    operands.clear();
    gradients = nullptr;
  }

  CallOperands operands;
  std::vector<Held> held, held_members;
  PyObject* gradients = nullptr;  // one that requires a gradient while none are recorded
};

// Those of a plan. Whoever uses it has the GIL.
class GivenPool {
 public:
  void prepare(const Plan& plan) { idle_.push_back(std::make_unique<Given>(plan)); }

  std::unique_ptr<Given> take(const Plan& plan) {
    if (idle_.empty()) prepare(plan);
    std::unique_ptr<Given> given = std::move(idle_.back());
    idle_.pop_back();
    return given;
  }
  void put(std::unique_ptr<Given> given) {
    given->clear();
    idle_.push_back(std::move(given));
  }

 private:
  std::vector<std::unique_ptr<Given>> idle_;
};

// For the duration of a call.
class GivenLease {
 public:
  GivenLease(GivenPool& pool, const Plan& plan) : pool_(pool), given_(pool.take(plan)) {}
  ~GivenLease() { pool_.put(std::move(given_)); }
  GivenLease(const GivenLease&) = delete;
  GivenLease& operator=(const GivenLease&) = delete;

  Given& operator*() { return *given_; }
  Given* operator->() { return given_.get(); }

 private:
  GivenPool& pool_;
  std::unique_ptr<Given> given_;
};

}  // namespace planq::python
