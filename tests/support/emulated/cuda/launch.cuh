// In the place of src/cuda/launch.cuh: a launch runs its blocks one after another, at once.
#pragma once

#include <bit>
#include <cstring>
#include <vector>

#include "core/architectures.h"
#include "core/bound.h"
#include "core/registry.h"
#include "cuda/memory_access.cuh"

struct dim3 {
  unsigned x;
  explicit dim3(unsigned threads) : x(threads) {}
};

using cudaError_t = int;
inline constexpr cudaError_t cudaSuccess = 0;
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int, std::size_t) {
  *blocks = 1;
  return cudaSuccess;
}

namespace planq::cuda {

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

inline std::int64_t power_of_two(std::int64_t n) {
  return static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
}

inline std::int64_t even_blocks(std::int64_t tiles, std::int64_t slots) {
  const std::int64_t rounds = std::max<std::int64_t>((tiles + slots - 1) / slots, 1);
  return std::max<std::int64_t>((tiles + rounds - 1) / rounds, 1);
}

struct Grid {
  std::int64_t blocks = 1;
  dim3 threads{1};
  int cluster = 1;  // no other is emulated
  bool dependent = false;
  int shared_bytes = 0;
};

// How many there were since a test set it to 0.
inline int& launches() {
  static int count = 0;
  return count;
}

template <class Args>
Status launch(void (*kernel)(Args), const Grid& grid, const Args& args, Bound&) {
  ++launches();
  gridDim = {static_cast<unsigned>(grid.blocks), 1, 1};
  blockDim = {grid.threads.x, 1, 1};
  for (unsigned block = 0; block < gridDim.x; ++block)
    emulated::Block::current().run(block, grid.threads.x, [&] { kernel(args); });
  return Status::success();
}
template <class Args>
Status preload(void (*)(Args), int = 0) {
  return Status::success();
}
// What the launch before is still writing: a test may have it arrive when a thread first waits.
struct Arrival {
  void* to;
  const void* from;
  std::size_t bytes;
};
inline std::vector<Arrival>& arrivals() {
  static std::vector<Arrival> pending;
  return pending;
}
inline void wait_for_previous() {
  for (const Arrival& each : arrivals()) std::memcpy(each.to, each.from, each.bytes);
  arrivals().clear();
}
inline void follow_previous() { wait_for_previous(); }
inline Status clear(void* data, std::size_t bytes, Bound&) {
  std::memset(data, 0, bytes);
  return Status::success();
}

inline void let_dependents_start() {}

}  // namespace planq::cuda

#define PLANQ_TRY(expression)                                                     \
  {                                                                               \
    if (const ::planq::Status status = (expression); !status.ok()) return status; \
  }
