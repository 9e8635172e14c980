// argmax on CUDA: a block or a cluster of blocks reads a row. Each thread keeps the first of its
// largest elements; the largest of all keys is exact in any order. Clusters spread a row over eight
// multiprocessors without workspace, initialised memory or a second launch. The file that includes
// this names the type of the input: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/architectures.h"
#include "core/sku.h"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/lines.cuh"
#include "cuda/reduce.cuh"
#include "ops/gather/argmax/desc.h"
#include "ops/gather/argmax/rows.h"
#include "ops/gather/leader.cuh"

namespace planq::argmax {
namespace {

using cuda::Element;
using gather::kNoKey;
using gather::Leader;
using std::int64_t;
using std::uint32_t;

constexpr int kThreads = 512, kBlocks = 2;                       // of a multiprocessor
constexpr int kWarps = kThreads / cuda::kWarp, kMostBlocks = 8;  // of a row
// Vectors that a thread has under way.
constexpr int kBatch = 4;
constexpr int kEach = cuda::kPerVector<Element>;

struct ArgmaxArgs {
  Rows rows;
  const Element* input;
  int64_t count;  // of rows
  int cluster;    // blocks of a row
};

// The elements of the row that fall to thread `rank` of `team`.
__device__ __forceinline__ int64_t own_key(const Element* row, int64_t length, int rank,
                                           int64_t team) {
  const cuda::AlignedLine<Element> line(row, length);
  Leader leader;
  if (rank < line.head) leader.add(math::widen(cuda::load_single(row + rank)), rank);
#pragma unroll 1
  for (int64_t first = rank; first < line.vectors; first += kBatch * team) {
    uint4 vectors[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t at = first + k * team;
      if (at < line.vectors) vectors[k] = cuda::load_once(line.input + at * kEach);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t at = first + k * team;
      if (at < line.vectors) leader.add(vectors[k], static_cast<uint32_t>(line.head + at * kEach));
    }
  }
  const int64_t last = length - line.tail + rank;
  if (rank < line.tail)
    leader.add(math::widen(cuda::load_single(row + last)), static_cast<uint32_t>(last));
  return leader.key();
}

struct Exchange {
  int64_t keys[kMostBlocks * kWarps];
  cuda::Mailbox mail;  // of clusters
};

// The first block of a cluster expects the keys of all warps.
__device__ __forceinline__ void open_exchange(Exchange& exchange, int cluster) {
  if (threadIdx.x == 0) exchange.mail.expect(blockDim.x / cuda::kWarp * cluster * sizeof(int64_t));
  cuda::cluster_arrive_unordered();
}

// Leaves the keys of all warps in the first block.
__device__ __forceinline__ void exchange_keys(Exchange& exchange, int64_t key, int cluster) {
  const int warps = blockDim.x / cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const bool first_lane = threadIdx.x % cuda::kWarp == 0;
  if (cluster == 1) {
    if (first_lane) exchange.keys[warp] = key;
    __syncthreads();
    return;
  }
  cuda::cluster_wait();
  if (first_lane) exchange.mail.send(&exchange.keys[cuda::cluster_rank() * warps + warp], 0, key);
  if (cuda::cluster_rank() == 0) exchange.mail.wait();
}

__global__ void __launch_bounds__(kThreads, kBlocks)
    largest_of_rows(const __grid_constant__ ArgmaxArgs args) {
  cuda::follow_previous();
  __shared__ Exchange exchange;
  const int cluster = args.cluster;
  if (cluster > 1) open_exchange(exchange, cluster);
  const int block = cluster > 1 ? cuda::cluster_rank() : 0;
  const int rank = block * blockDim.x + threadIdx.x, team = cluster * blockDim.x;
  const int keys = team / cuda::kWarp;
  // In clusters there is a row for each: mail comes once.
#pragma unroll 1
  for (int64_t row = blockIdx.x / cluster; row < args.count; row += gridDim.x / cluster) {
    const auto at = args.rows.space.offsets(row);
    int64_t key = cuda::warp_max(own_key(args.input + at.at[0], args.rows.length, rank, team));
    exchange_keys(exchange, key, cluster);
    if (block == 0 && threadIdx.x < cuda::kWarp) {
      key = kNoKey;
      for (int i = threadIdx.x; i < keys; i += cuda::kWarp) key = max(key, exchange.keys[i]);
      key = cuda::warp_max(key);
      if (threadIdx.x == 0) args.rows.store(at.at[1], key);
    }
    if (cluster == 1) __syncthreads();  // the keys have been read
  }
}

// Blocks of a row: as many as all multiprocessors have room for, with a vector for every thread.
int cluster_of(int64_t count, int64_t vectors, const Device& device) {
  if (!has_clusters(device.arch)) return 1;
  const int64_t room = kBlocks * int64_t{device.multiprocessors} / std::max<int64_t>(count, 1);
  const int64_t wanted = std::min({room, vectors / kThreads, int64_t{kMostBlocks}});
  return static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(std::max<int64_t>(wanted, 1))));
}

Status prepare(const Descriptor&, const Device&, State&) { return cuda::preload(largest_of_rows); }

Status bind(const Call& call, Bound& bound) {
  const Rows rows(call);
  const int64_t count = rows.size(), vectors = cuda::ceil_div(rows.length, kEach);
  if (count == 0) return Status::success();
  const int cluster = cluster_of(count, vectors, call.device);
  const auto threads = std::clamp<int64_t>(cuda::power_of_two(cuda::ceil_div(vectors, cluster)),
                                           cuda::kWarp, kThreads);
  const ArgmaxArgs args = {rows, static_cast<const Element*>(call.operands[kInput].data), count,
                           cluster};
  cuda::Grid grid;
  grid.blocks = std::min(count, int64_t{1} << 30) * cluster;
  grid.threads = dim3(static_cast<unsigned>(threads));
  grid.cluster = cluster;
  grid.dependent = has_dependent_launches(call.device.arch);
  return cuda::launch(largest_of_rows, grid, args, bound);
}

constexpr Kernel kKernels[] = {{.op = "argmax",
                                .body = "rows",
                                .dtypes = kDTypes<cuda::kElement>,
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {80, kLastArch},
                                .rank = 0,
                                .guarantee = kGuarantee,
                                .rejects = rejects<cuda::kElement>,
                                .workspace = no_workspace,
                                .prepare = prepare,
                                .bind = bind}};

}  // namespace
}  // namespace planq::argmax
