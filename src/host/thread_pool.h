// Work sharing for host kernels: one small pool of sleeping threads for the whole process.
//
// A loop is cut into chunks that threads claim one by one, so which thread runs a chunk is not
// fixed: bodies must give the same bits in any assignment. Kernels here qualify, because chunks
// write disjoint memory and what they share are exact maxima and counts.
#pragma once

#include <cstdint>

namespace planq::host {

// The most threads that one loop uses: waking more would take longer than they save.
inline constexpr int kMaxThreads = 256;

// Calls body(first, last) for consecutive pieces of [0, count). Pieces hold at least `grain`
// indices, except the last. Runs inline, without touching the pool, when one piece is all there is
// or when another caller has the pool; the caller always takes part. Allocates nothing, except
// that the first loops start the threads.
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
