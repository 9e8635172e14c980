// In the place of src/ops/attention/attention/warpgroups.cuh, whose instructions are not emulated:
// all its tiles are left to attend_left.
#pragma once

#include "ops/attention/attention/wide_tiles.cuh"

namespace planq::attention {
namespace {

constexpr int kWideThreads = 32;

template <int kColumns>
struct WideMemory {
  static constexpr int kBytes = 0;
};

template <class T, int kColumns, bool kCapped>
void attend_wide(const WideArgs args) {
  if (threadIdx.x != 0 || *args.starts_are_right == 0) return;
  for (std::int64_t number = blockIdx.x; number < args.count; number += gridDim.x) {
    const Job job = job_of(args, static_cast<std::uint32_t>(number));
    if (job.tokens > 0 && (job.span < 0 || job.sees())) args.left[number] = 1;
  }
}

}  // namespace
}  // namespace planq::attention
