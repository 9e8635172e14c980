// How deep a call goes on its thread's stack: what lies below is painted, and after the call the
// lowest place that lost its paint is looked for. Built and called by stack.py.

#include <alloca.h>

#include <cstddef>
#include <cstdint>

namespace {

using Word = std::uintptr_t;
constexpr Word kPaint = 0x9E3779B97F4A7C15;

[[gnu::noinline]] void paint(std::size_t words) {
  auto* const low = static_cast<volatile Word*>(alloca(words * sizeof(Word)));
  for (std::size_t i = 0; i < words; ++i) low[i] = kPaint;
}

// How many of the words that paint() painted lie above the lowest one that was written since.
[[gnu::noinline]] std::size_t used(std::size_t words) {
  const auto* const low = static_cast<volatile Word*>(alloca(words * sizeof(Word)));
  std::size_t untouched = 0;
  while (untouched < words && low[untouched] == kPaint) ++untouched;
  return words - untouched;
}

}  // namespace

// The bytes of stack that call(argument) uses, `reach` at most; what it returned goes to `result`.
extern "C" std::size_t stack_depth(void* (*call)(void*), void* argument, std::size_t reach,
                                   void** result) {
  paint(reach / sizeof(Word));
  *result = call(argument);
  return used(reach / sizeof(Word)) * sizeof(Word);
}

// Uses as many bytes of stack as the argument says, for a test of the above.
extern "C" void* use_stack(void* bytes) {
  auto* const low = static_cast<volatile char*>(alloca(reinterpret_cast<std::size_t>(bytes)));
  low[0] = 1;
  return bytes;
}
