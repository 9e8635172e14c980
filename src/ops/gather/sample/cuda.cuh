// sample on CUDA: a block or a cluster of blocks walks a row several times, the first time from
// memory and then from caches. Digits of elements' orders are counted, or their weights added up,
// in shared memory, the highest digit first. So a place in the order is found without a sort. All
// sums are of integers, exact in any order. The file that includes this names the type of the
// input: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/architectures.h"
#include "core/sku.h"
#include "cuda/launch.cuh"
#include "ops/gather/sample/desc.h"
#include "ops/gather/sample/rows.h"
#include "ops/gather/sample/team.cuh"

namespace planq::sample {
namespace {

struct SampleArgs {
  Rows rows;
  const Element* input;
  int64_t count;     // of rows
  int64_t* invalid;  // null: nobody asks
  int cluster;       // blocks of a row
};

__device__ __forceinline__ void clear_bins(Shared& shared) {
  auto* const words = &shared.low[0][0];
  constexpr int kWords = 2 * kBins * Shared::kCopies;
#pragma unroll
  for (int i = 0; i < kWords / kThreads; ++i) words[i * kThreads + threadIdx.x] = 0;
}
__device__ __forceinline__ void add_to_bin(Shared& shared, int bin, uint64_t value) {
  const int copy = static_cast<int>(threadIdx.x) % Shared::kCopies;
  const auto low = static_cast<uint32_t>(value);
  auto high = static_cast<uint32_t>(value >> 32);
  if (low != 0 && atomicAdd(&shared.low[bin][copy], low) > 0xFFFFFFFFu - low) ++high;
  if (high != 0) atomicAdd(&shared.high[bin][copy], high);
}
__device__ __forceinline__ uint64_t sum_of_bin(const Shared& shared, int bin) {
  uint64_t low = 0, high = 0;
#pragma unroll
  for (int i = 0; i < Shared::kCopies; ++i) {
    const int copy = (i + static_cast<int>(threadIdx.x)) % Shared::kCopies;
    low += shared.low[bin][copy];
    high += shared.high[bin][copy];
  }
  return low + (high << 32);
}

// The bin in which the sum from the highest one on reaches a goal: what is above it, and its own.
struct Bin {
  bool exists;
  uint32_t number;
  uint64_t above, own;
};
// For all threads. `goal_of`: of the sum of all bins.
template <class Goal>
__device__ __forceinline__ Bin bin_of_goal(Team& team, const Goal& goal_of) {
  static_assert(kBins <= kThreads);
  Shared& shared = team.shared();
  const int thread = static_cast<int>(threadIdx.x), bin = kBins - 1 - thread;
  if (thread < kBins) team.told()[bin] = sum_of_bin(shared, bin);
  team.tell();
  uint64_t own = 0;
  for (int rank = 0; thread < kBins && rank < team.blocks(); ++rank) own += team.heard(rank, bin);
  const auto sums = cuda::sum_block<kThreads>(own);
  const uint64_t goal = goal_of(sums.all);
  if (sums.before < goal && goal <= sums.before + own) {
    shared.place = bin;
    shared.before = sums.before;
    shared.own = own;
  }
  __syncthreads();
  return {goal <= sums.all, static_cast<uint32_t>(shared.place), shared.before, shared.own};
}

// Adds up a measure by a digit of the elements' orders.
__device__ __forceinline__ void fill_bins(Team& team, const Line& line, const Measure& measure,
                                          int shift) {
  clear_bins(team.shared());
  __syncthreads();
  team.walk<1>(line, [&](const uint4& vector, int32_t first) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float x = cuda::element_of<Element>(vector, i);
      const uint64_t own = measure.of(x, first + i);
      if (own > 0)
        add_to_bin(team.shared(), static_cast<int>(key_in(order_of(x)) >> shift & 0xFF), own);
    }
  });
  __syncthreads();
}

// The shortest prefix of a cut by which a filter's goal is reached: top_p's, which is a part of the
// cut's weight, or top_k's, a number of elements.
class Prefix {
 public:
  __device__ __forceinline__ Prefix(const Drawer& drawer, const Settings& settings, bool weighs)
      : settings_(settings), measure_{drawer, whole_row().order, whole_row().last, weighs} {}

  __device__ __forceinline__ Cut find(Team& team, const Line& line) {
    const Drawer& drawer = measure_.drawer;
    if (!measure_.weighs) measure_.least = first_least(team);
#pragma unroll 1
    for (int shift = 24; shift >= kLastShift;) {
      fill_bins(team, line, measure_, shift);
      const Bin bin = bin_of_goal(
          team, [&](uint64_t sum) { return goal_ = shift == 24 ? goal_of(sum) : goal_; });
      if (!bin.exists) {
        measure_.least = whole_row().order;
        continue;
      }
      narrow(bin, shift);
      shift -= 8;
    }
    const int32_t order = measure_.least;
    const uint64_t each = measure_.weighs ? drawer.weigher.weight(gather::value_of(order)) : 1;
    const uint64_t count = (goal_ + each - 1) / each;  // of equal elements
    if (count * each == ties_)
      return {order, order == drawer.cut.order ? drawer.cut.last : whole_row().last};
    return {order, equal_element(team, line, count - 1)};
  }

 private:
  // Orders have zeros behind those of 16-bit elements.
  static constexpr int kLastShift = cuda::kElement == DType::Float32   ? 0
                                    : cuda::kElement == DType::Float16 ? 8
                                                                       : 16;

  // Where a number of elements is looked for first. Of few it is known that they are not below; the
  // other place is a guess, which find() mends.
  __device__ __forceinline__ int32_t first_least(Team& team) const {
    const int count = settings_.top_k;
    return count <= kParts ? bound_of_rank(team, count) : measure_.drawer.weigher.near();
  }
  __device__ __forceinline__ uint64_t goal_of(uint64_t sum) const {
    return measure_.weighs ? part_of(sum, settings_.top_p) : static_cast<uint64_t>(settings_.top_k);
  }
  // To the orders of a bin.
  __device__ __forceinline__ void narrow(const Bin& bin, int shift) {
    goal_ -= bin.above;
    ties_ = bin.own;
    prefix_ |= bin.number << shift;
    measure_.least = order_in(prefix_);
    measure_.most = order_in(prefix_ | ((1u << shift) - 1));
  }
  // The index of number `place` of the elements that are left, by rising indices; for all threads.
  __device__ __forceinline__ int32_t equal_element(Team& team, const Line& line, uint64_t place) {
    measure_.weighs = false;
    locate(
        team, line, measure_, [&](uint64_t) { return place; },
        [&](int32_t index) { team.told()[0] = static_cast<uint32_t>(index); });
    team.tell();
    return static_cast<int32_t>(team.heard(team.shared().place / kWarps, 0));
  }

  const Settings& settings_;
  Measure measure_;
  uint32_t prefix_ = 0;
  uint64_t goal_ = 0, ties_ = 0;
};

// What the filters leave.
__device__ __forceinline__ Drawer filtered(Team& team, const Line& line, const Settings& settings,
                                           const Weigher& weigher) {
  Drawer drawer = {weigher, whole_row(), 0};
#pragma unroll 1
  for (int filter = 0; filter < 2; ++filter) {
    const bool weighs = filter == 1;
    if (weighs ? settings.top_p < 1 : settings.limits(line.length))
      drawer.cut = Prefix(drawer, settings, weighs).find(team, line);
  }
  drawer.min_p = settings.min_p;
  return drawer;
}

// One thread of the team stores the row's index.
__device__ __forceinline__ void sample_row(Team& team, const SampleArgs& args, int64_t row) {
  Shared& shared = team.shared();
  if (threadIdx.x == 0) shared.at = args.rows.space.offsets(row);
  __syncthreads();
  const Line line(args.input + shared.at.at[kInput], args.rows.length);
  if (threadIdx.x == 0) shared.settings = args.rows.settings(shared.at);
  const int64_t key = largest_key(team, line);
  const Settings& settings = shared.settings;
  const int32_t order = gather::order_in(key);
  if (!settings.are_valid() || !has_weights(order)) {
    if (!team.is_first()) return;
    args.rows.output.store(shared.at.at[kOutput], -1);
    if (args.invalid) atomicAdd(reinterpret_cast<unsigned long long*>(args.invalid), 1ull);
    return;
  }
  if (settings.is_greedy()) {
    if (team.is_first()) args.rows.output.store(shared.at.at[kOutput], gather::index_of(key));
    return;
  }
  const Weigher weigher = {gather::value_of(order), settings.slope()};
  const Measure measure = {filtered(team, line, settings, weigher), whole_row().order,
                           whole_row().last, true};
  locate(
      team, line, measure, [&](uint64_t sum) { return drawn(settings, sum); },
      [&](int32_t index) { args.rows.output.store(shared.at.at[kOutput], index); });
}

__global__ void __launch_bounds__(kThreads, kBlocks)
    sample_rows(const __grid_constant__ SampleArgs args) {
  cuda::follow_previous();
  __shared__ Shared shared;
  Team team(shared, args.cluster);
#pragma unroll 1
  for (int64_t row = blockIdx.x / args.cluster; row < args.count; row += gridDim.x / args.cluster) {
    sample_row(team, args, row);
    __syncthreads();  // all have read what the next row writes
  }
  team.tell();  // no block ends while others read its memory
}

// Blocks of a row: as many as all multiprocessors have room for, with a vector for every thread.
int cluster_of(int64_t count, int64_t vectors, const Device& device) {
  if (!has_clusters(device.arch)) return 1;
  const int64_t room = kBlocks * int64_t{device.multiprocessors} / std::max<int64_t>(count, 1);
  const int64_t wanted = std::min({room, vectors / kThreads, int64_t{kMostBlocks}});
  return static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(std::max<int64_t>(wanted, 1))));
}

Status prepare(const Descriptor&, const Device&, State&) { return cuda::preload(sample_rows); }

Status bind(const Call& call, Bound& bound) {
  const Rows rows(call);
  auto* const invalid = static_cast<int64_t*>(call.operands[kInvalid].data);
  if (invalid) PLANQ_TRY(cuda::clear(invalid, sizeof *invalid, bound));
  const int64_t count = rows.size();
  if (count == 0) return Status::success();
  const int cluster = cluster_of(count, cuda::ceil_div(rows.length, kEach), call.device);
  const SampleArgs args = {rows, static_cast<const Element*>(call.operands[kInput].data), count,
                           invalid, cluster};
  cuda::Grid grid;
  grid.blocks = std::min(count, int64_t{1} << 27) * cluster;
  grid.threads = dim3(kThreads);
  grid.cluster = cluster;
  // A kernel behind a clearing waits for it by the stream's order.
  grid.dependent = !invalid && has_dependent_launches(call.device.arch);
  return cuda::launch(sample_rows, grid, args, bound);
}

constexpr Kernel kKernels[] = {{.op = "sample",
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
}  // namespace planq::sample
