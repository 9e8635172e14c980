// Errors on their way to a C program: a code, and a sentence that the thread keeps.
#pragma once

#include <string>

#include "bindings/c/planq.h"
#include "core/operands.h"
#include "core/status.h"

namespace planq::c {

// What ends a call. It is thrown inside of the binding alone.
struct Refusal {
  planq_code code;
  std::string text;
};

[[noreturn]] void refuse(planq_code code, std::string text);
// "scale: expected ..., got ...; advice"
[[noreturn]] void refuse(const ArgumentFailure& failure);
[[noreturn]] void refuse(const Fault& fault);
// Throws where it is a fault.
void check_ok(const Fault& fault);
// Throws unless it is a success; `what` was being done.
void check(const Status& status, std::string_view what);
// An address that the caller has to give.
void check_given(const void* address, const char* name, const char* expected = "an address");

// Inside of a handler: keeps the sentence of what was thrown and answers its code.
planq_code keep_error() noexcept;
const char* last_error() noexcept;

// Runs the body of a function of planq.h: nothing that is thrown leaves it.
template <class Body>
planq_code guarded(const Body& body) noexcept {
  try {
    body();
    return PLANQ_OK;
  } catch (...) {
    return keep_error();
  }
}

}  // namespace planq::c
