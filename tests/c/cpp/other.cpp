// The second file of the program that includes planq.hpp, twice.
#include <planq.hpp>

#include <atomic>
#include <cstdlib>
#include <new>
#include <planq.hpp>

#include "other.h"

namespace {
std::atomic<std::size_t> allocations{0};
}

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
std::size_t allocations_so_far() { return allocations; }

planq::Plan select_elsewhere(const planq::Stream& stream) {
  return planq::Plan::select(stream, rows_descriptor());
}

planq::Descriptor rows_descriptor() {
  return planq::Descriptor("dynamic_range_quantize")
      .set("shape", {planq::Dim("m", 16), 4})
      .set("input_dtype", planq::dtypes::float32)
      .set("output_dtype", planq::dtypes::int8)
      .set("scope", planq::Scope::token());
}
