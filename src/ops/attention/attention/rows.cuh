// attention on CUDA: what is not done by tensor cores. A block checks starts, lengths and pages,
// and counts tokens that have no answer. Others merge the spans of rows whose spans have blocks of
// their own.
#pragma once

#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "math/formats.h"
#include "ops/attention/attention/layout.h"

namespace planq::attention {
namespace {

using std::int64_t;

// What the kernels of a call share. States of spans are (tokens, heads, spans, 2 + columns): M,
// which is NaN where the row is lost, L, and the values.
struct CudaArgs {
  Layout p;
  DType output_dtype;
  const std::int32_t* starts_are_right;
  float* states;  // null: a block has all spans of its rows
  int64_t spans;

  __device__ __forceinline__ int64_t state_size() const { return 2 + p.value.columns; }
  __device__ __forceinline__ float* state(int64_t token, int64_t head, int64_t span) const {
    return states + ((token * p.heads + head) * spans + span) * state_size();
  }
  __device__ __forceinline__ void store(int64_t token, int64_t head, int64_t column,
                                        float value) const {
    const int64_t at = token * p.output_token + head * p.output_head + column;
    if (output_dtype == DType::Float16)
      static_cast<math::Half*>(p.output)[at] = math::narrow<math::Half>(value);
    else if (output_dtype == DType::BFloat16)
      static_cast<math::Bfloat16*>(p.output)[at] = math::narrow<math::Bfloat16>(value);
    else
      static_cast<float*>(p.output)[at] = math::narrow<float>(value);
  }
  // Whether all rows of a sequence and a key head are NaN.
  __device__ __forceinline__ bool is_lost(int64_t sequence, int64_t key_head) const {
    return !p.fits(sequence) || !(p.factor(key_head) > 0);
  }
  __device__ __forceinline__ const float* sink_of(int64_t head) const {
    return p.sink ? p.sink + head : nullptr;
  }
};

// The larger number, or NaN where one of them is.
__device__ __forceinline__ float larger_or_nan(float a, float b) {
#if defined(__CUDA_ARCH__)
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return a != a || a > b ? a : b;
#endif
}

// --- Starts, lengths and pages -------------------------------------------------------------------

struct CheckArgs {
  Layout p;
  std::int32_t* starts_are_right;
  int64_t* invalid = nullptr;    // null: nobody asks
  std::int32_t* left = nullptr;  // tiles that the wide kernel leaves: none so far
  int64_t left_count = 0;
};
constexpr int kCheckThreads = 1024;

// The same for all threads of the block.
__device__ __forceinline__ bool starts_are_right(const Layout& p) {
  bool wrong = false;
  for (int64_t i = threadIdx.x; i <= p.batch; i += kCheckThreads) {
    const std::int32_t before = i > 0 ? p.query_start[i - 1] : 0;
    wrong = wrong || p.query_start[i] < before || p.query_start[i] > p.tokens;
  }
  return !__syncthreads_or(wrong);
}

// This lane's part of a warp's count for a sequence. Pages are checked together first; only where
// one is missing, tokens are asked which of them they see.
__device__ __forceinline__ int64_t invalid_tokens(const Layout& p, int64_t sequence) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int64_t first = p.query_start[sequence], end = p.query_start[sequence + 1];
  if (!p.fits(sequence)) return lane == 0 ? end - first : 0;
  if (!p.table || first == end) return 0;
  bool lacks = false;
  const int64_t pages = (p.key_length[sequence] + p.page_size - 1) / p.page_size;
  for (int64_t i = lane; i < pages; i += cuda::kWarp) {
    const std::int32_t page = p.table[sequence * p.table_row + i];
    lacks = lacks || page < 0 || page >= p.pages;
  }
  if (!__any_sync(cuda::kAllLanes, lacks)) return 0;
  int64_t invalid = 0;
  for (int64_t token = first + lane; token < end; token += cuda::kWarp)
    invalid += p.has(sequence, p.seen(sequence, token)) ? 0 : 1;
  return invalid;
}

__global__ void __launch_bounds__(kCheckThreads)
    check_sequences(const __grid_constant__ CheckArgs args) {
  __shared__ unsigned long long count;
  cuda::follow_previous();
  if (threadIdx.x == 0) count = 0;
  for (int64_t i = threadIdx.x; i < args.left_count; i += kCheckThreads) args.left[i] = 0;
  const bool right = starts_are_right(args.p);
  int64_t own = 0;
  if (right && args.invalid)
    for (int64_t i = threadIdx.x / cuda::kWarp; i < args.p.batch; i += kCheckThreads / cuda::kWarp)
      own += invalid_tokens(args.p, i);
  if (own != 0) atomicAdd(&count, static_cast<unsigned long long>(own));
  __syncthreads();
  if (threadIdx.x != 0) return;
  *args.starts_are_right = right ? 1 : 0;
  if (args.invalid) *args.invalid = right ? static_cast<int64_t>(count) : args.p.tokens;
}

// --- Rows whose spans have blocks of their own ---------------------------------------------------

constexpr int kRowThreads = 128;
constexpr int kColumnsOfThread = kMostValueColumns / kRowThreads;

// The state of all spans that a row sees, of some columns.
struct MergedRow {
  float most = -math::detail::infinity(), sum = 0, values[kColumnsOfThread] = {};
  bool lost = false;

  __device__ __forceinline__ void merge(const float* state, int64_t columns) {
    lost = lost || state[0] != state[0];
    const math::Merging merging(most, state[0]);
    sum = merging.sum(sum, state[1]);
    most = merging.most;
#pragma unroll
    for (int i = 0; i < kColumnsOfThread; ++i) {
      const int64_t column = threadIdx.x + i * kRowThreads;
      if (column < columns) values[i] = merging.sum(values[i], state[2 + column]);
    }
  }
};

__device__ __forceinline__ void finish_row(const CudaArgs& args, int64_t token, int64_t head) {
  const Layout& p = args.p;
  const bool right = *args.starts_are_right != 0;
  const int64_t sequence = right ? p.sequence_of(token) : -1, key_head = head / p.group();
  MergedRow row;
  row.lost = !right || (sequence >= 0 && !p.fits(sequence)) || !(p.factor(key_head) > 0);
  const Keys keys = sequence >= 0 && !row.lost ? p.seen(sequence, token) : Keys{};
  if (keys.any())
    for (int64_t span = keys.first / math::kSpanKeys; span * math::kSpanKeys < keys.end; ++span)
      row.merge(args.state(token, head, span), p.value.columns);
  const math::RowEnd end(row.most, row.sum, row.lost, args.sink_of(head));
  if (p.lse && threadIdx.x == 0) p.lse[token * p.lse_token + head] = math::narrow<float>(end.lse);
  const float scale = p.head_scale(p.value, key_head);
#pragma unroll
  for (int i = 0; i < kColumnsOfThread; ++i) {
    const int64_t column = threadIdx.x + i * kRowThreads;
    if (column >= p.value.columns) continue;
    const float y = end.output(row.values[i], p.scales_outputs() ? &scale : nullptr);
    args.store(token, head, column, end.lost ? math::canonical_nan<float>() : keys.any() ? y : 0);
  }
}

__global__ void __launch_bounds__(kRowThreads) finish_rows(const __grid_constant__ CudaArgs args) {
  cuda::follow_previous();
#pragma unroll 1
  for (int64_t row = blockIdx.x; row < args.p.tokens * args.p.heads; row += gridDim.x)
    finish_row(args, row / args.p.heads, row % args.p.heads);
}

}  // namespace
}  // namespace planq::attention
