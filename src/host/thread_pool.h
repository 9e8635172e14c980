// Work sharing for host kernels: one pool of threads for the whole process. Its threads are started
// by the first loops that want them, and sleep between loops.
//
// A loop is cut into pieces that threads claim one by one. Which thread runs a piece is not fixed,
// nor are the pieces: they depend on the number of threads. So a body must give the same bits
// however its range is cut. A body may write memory of its own indices. What pieces write together
// has to be independent of their order, as maxima, counts of integers and sets of bits are.
#pragma once

#include <cstdint>

namespace planq::host {

// The most threads that one loop uses: waking more would take longer than they save.
inline constexpr int kMaxThreads = 256;

// Calls body(first, last) for consecutive pieces of [0, count). Each holds at least `grain`
// indices, except the last. The caller takes part; it runs everything itself where there is one
// piece only, or where another caller has the pool. Allocates nothing, except where it starts
// threads.
using LoopBody = void (*)(const void* context, std::int64_t first, std::int64_t last);
void parallel_loop(int threads, std::int64_t count, std::int64_t grain, LoopBody body,
                   const void* context);

// Not inlined: the body's variables then take stack only while it runs. Inlined, the variables of
// all loops of a caller would take stack at the same time.
template <class Body>
[[gnu::noinline]] void run_body(const void* context, std::int64_t first, std::int64_t last) {
  (*static_cast<const Body*>(context))(first, last);
}

template <class Body>
void parallel_for(int threads, std::int64_t count, std::int64_t grain, const Body& body) {
  if (threads <= 1 || count <= grain) {
    if (count > 0) run_body<Body>(&body, 0, count);
    return;
  }
  parallel_loop(threads, count, grain, run_body<Body>, &body);
}

}  // namespace planq::host
