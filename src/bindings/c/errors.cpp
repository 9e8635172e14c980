#include "bindings/c/errors.h"

#include <exception>
#include <new>
#include <utility>

#include "core/device.h"

namespace planq::c {
namespace {

constexpr const char* kNoMemory = "the machine has no memory left";

// The sentence of a thread: made for the call, or one for which there is always room.
struct LastError {
  std::string made;
  const char* fixed = "";

  const char* text() const { return fixed ? fixed : made.c_str(); }
};
thread_local LastError last;

planq_code keep(planq_code code, std::string text) noexcept {
  last.made = std::move(text);
  last.fixed = nullptr;
  return code;
}
planq_code keep(planq_code code, const char* fixed) noexcept {
  last.fixed = fixed;
  return code;
}

}  // namespace

void refuse(planq_code code, std::string text) { throw Refusal{code, std::move(text)}; }

void refuse(const ArgumentFailure& failure) {
  refuse(PLANQ_ERROR_ARGUMENT, failure.operand + ": expected " + failure.expected + ", got " +
                                   failure.actual +
                                   (failure.advice.empty() ? "" : "; " + failure.advice));
}

void refuse(const Fault& fault) { refuse(PLANQ_ERROR_DESCRIPTOR, fault.field + ": " + fault.text); }

void check_ok(const Fault& fault) {
  if (!fault.ok()) refuse(fault);
}

void check(const Status& status, std::string_view what) {
  if (status.ok()) return;
  const int error = status.cuda_error;
  refuse(PLANQ_ERROR_CUDA, std::string(what) + ": " + cuda_error_name(error) + " (" +
                               std::to_string(error) + "): " + cuda_error_text(error));
}

void check_given(const void* address, const char* name, const char* expected) {
  if (!address) refuse(ArgumentFailure{name, expected, "NULL", ""});
}

planq_code keep_error() noexcept {
  try {
    throw;
  } catch (Refusal& refusal) {
    return keep(refusal.code, std::move(refusal.text));
  } catch (const std::bad_alloc&) {
    return keep(PLANQ_ERROR_MEMORY, kNoMemory);
  } catch (const std::exception& error) {
    try {
      return keep(PLANQ_ERROR_INTERNAL, std::string(error.what()));
    } catch (...) {
      return keep(PLANQ_ERROR_MEMORY, kNoMemory);
    }
  } catch (...) {
    return keep(PLANQ_ERROR_INTERNAL, "an unknown fault");
  }
}

const char* last_error() noexcept { return last.text(); }

}  // namespace planq::c
