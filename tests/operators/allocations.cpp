// Counts what planq's libraries take from the heap, for the tests. The linker leads their calls of
// operator new and malloc here (--wrap), each library's to a counter of its own.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace {

std::atomic<std::uint64_t> count{0};

}  // namespace

extern "C" {

void* __real_malloc(std::size_t bytes);
void* __real__Znwm(std::size_t bytes);
void* __real__Znam(std::size_t bytes);
void* __real__ZnwmSt11align_val_t(std::size_t bytes, std::align_val_t alignment);

void* __wrap_malloc(std::size_t bytes) {
  ++count;
  return __real_malloc(bytes);
}
void* __wrap__Znwm(std::size_t bytes) {
  ++count;
  return __real__Znwm(bytes);
}
void* __wrap__Znam(std::size_t bytes) {
  ++count;
  return __real__Znam(bytes);
}
void* __wrap__ZnwmSt11align_val_t(std::size_t bytes, std::align_val_t alignment) {
  ++count;
  return __real__ZnwmSt11align_val_t(bytes, alignment);
}

__attribute__((visibility("default"))) std::uint64_t planq_allocations() { return count; }
}
