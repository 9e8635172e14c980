// histogram_scatter_add on CUDA: launches that sort sources by the digits of their bins, stably,
// and one whose warps add up the bins. Nothing depends on which block or warp comes first.

#include "core/scratch.h"
#include "cuda/launch.cuh"
#include "cuda/radix_sort.cuh"
#include "cuda/tree_sum.cuh"
#include "ops/statistics/histogram_scatter_add/bins.h"

namespace planq::histogram_scatter_add {
namespace {

using cuda::kAllLanes;
using cuda::kWarp;
using std::int32_t;
using std::int64_t;
using std::uint32_t;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kBlocks = 4;  // of a multiprocessor, that add up bins
static_assert(kDigitBits == cuda::kDigitBits);
constexpr int64_t kMostBins = 0xFFFFFFFE;

// A list of sources, each with the number of its bin.
struct List {
  static constexpr int kEach = 16;
  struct Item {
    uint32_t key;
    float source;
  };
  uint32_t* bins;
  float* sources;

  List() = default;
  List(int64_t count, Scratch& scratch)
      : bins(scratch.take<uint32_t>(static_cast<std::size_t>(count))),
        sources(scratch.take<float>(static_cast<std::size_t>(count))) {}

  __device__ __forceinline__ const List& reader() const { return *this; }
  __device__ __forceinline__ uint32_t key(int64_t i) const { return bins[i]; }
  __device__ __forceinline__ Item item(int64_t i) const { return {bins[i], sources[i]}; }
  __device__ __forceinline__ void store(int64_t i, const Item& item) const {
    bins[i] = item.key;
    sources[i] = item.source;
  }
};

struct Pieces {
  List lists[2];
  cuda::Prefix digits;

  Pieces(int64_t count, Scratch& scratch)
      : lists{{count, scratch}, {count, scratch}}, digits(cuda::book_sort<List>(scratch, count)) {}
};

struct ListArgs {
  Bins bins;
  List list;
  int64_t count;
  int64_t* outside;
};

__global__ void __launch_bounds__(kThreads) list_bins(const __grid_constant__ ListArgs args) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.count) return;
  args.list.bins[i] = static_cast<uint32_t>(args.bins.of(i));
  args.list.sources[i] = args.bins.source[i];
}

// --- Adding up bins ----------------------------------------------------------------------------

// Sources of a bin that one lane adds up, and one warp. Of bins with more, one at most begins among
// the sources of a block.
constexpr int kFew = 8, kMany = 4 * math::kSumLeaf;
static_assert(kMany >= kThreads);
// What takes no part in a sum, -0 included.
constexpr float kNone = -0.0f;

// Where the sources of a bin end that begin at `first`: doubled steps, then halved ones.
__device__ __forceinline__ int64_t end_of(const ListArgs& args, int64_t first) {
  const uint32_t bin = args.list.bins[first];
  int64_t low = first, step = 1;  // `low` is of the bin
  while (low + step < args.count && args.list.bins[low + step] == bin) {
    low += step;
    step *= 2;
  }
  for (; step > 0; step /= 2)
    if (low + step < args.count && args.list.bins[low + step] == bin) low += step;
  return low + 1;
}

__device__ __forceinline__ float sum_by_lane(const float* sources, int64_t count) {
  float terms[kFew];
#pragma unroll
  for (int i = 0; i < kFew; ++i) terms[i] = i < count ? sources[i] : kNone;
  return cuda::join_neighbours(terms, cuda::AddNeighbours{});
}

__device__ __forceinline__ float sum_leaf_by_warp(const float* sources, int64_t count) {
  const auto terms = [&](int group, float (&to)[1]) {
    const int at = cuda::leaf_place<1>(group);
    to[0] = at < count ? sources[at] : kNone;
  };
  return cuda::join_leaf<1, float>(terms, cuda::AddNeighbours{});
}

__device__ __forceinline__ float sum_by_warp(const float* sources, int64_t count) {
  cuda::Subtrees<float> leaves;
  float sum = kNone;
#pragma unroll 1
  for (int64_t first = 0; first < count; first += math::kSumLeaf)
    sum = leaves.take(sum_leaf_by_warp(sources + first, count - first),
                      first + math::kSumLeaf >= count, cuda::AddNeighbours{});
  return sum;
}

// Every thread gets the result.
__device__ __forceinline__ float sum_by_block(const float* sources, int64_t count) {
  constexpr int64_t kAtATime = int64_t{kWarps} * math::kSumLeaf;
  __shared__ float leaves[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const cuda::AddNeighbours add;
  cuda::Subtrees<float> runs;
  float sum = kNone;
#pragma unroll 1
  for (int64_t first = 0; first < count; first += kAtATime) {
    const int64_t own = first + warp * math::kSumLeaf;
    const float leaf = own < count ? sum_leaf_by_warp(sources + own, count - own) : kNone;
    if (threadIdx.x % kWarp == 0) leaves[warp] = leaf;
    __syncthreads();
    float run[kWarps];
    memcpy(run, leaves, sizeof run);
    __syncthreads();  // the leaves have been read
    sum = runs.take(cuda::join_neighbours(run, add), first + kAtATime >= count, add);
  }
  return sum;
}

// Where the sources of a bin begin, and how many they are; 0: nothing begins here.
struct Segment {
  int64_t first, terms;
};

// The bins that begin among the sources of a warp, one after another.
__device__ __forceinline__ void add_by_warp(const ListArgs& args, const Segment& own, int64_t bin) {
  unsigned left = __ballot_sync(kAllLanes, own.terms > kFew && own.terms <= kMany);
  for (; left != 0; left &= left - 1) {
    const int of = __ffs(static_cast<int>(left)) - 1;
    const int64_t first = __shfl_sync(kAllLanes, own.first, of);
    const int64_t terms = __shfl_sync(kAllLanes, own.terms, of);
    const float sum = sum_by_warp(args.list.sources + first, terms);
    if (static_cast<int>(threadIdx.x) % kWarp == of) args.bins.add(bin, sum, terms);
  }
}

// A lane for each source: where a bin begins, it adds it up, or its warp does, or its block.
__global__ void __launch_bounds__(kThreads, kBlocks)
    add_bins(const __grid_constant__ ListArgs args) {
  __shared__ Segment longest;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, outside = args.bins.count();
  const bool exists = i < args.count;
  const int64_t bin = exists ? args.list.bins[i] : outside;
  const bool begins = exists && (i == 0 || args.list.bins[i - 1] != bin);
  if (begins && bin == outside) *args.outside = args.count - i;
  if (i == 0 && (args.count == 0 || args.list.bins[args.count - 1] != outside)) *args.outside = 0;
  const Segment own = {i, begins && bin != outside ? end_of(args, i) - i : 0};
  if (threadIdx.x == 0) longest.terms = 0;
  __syncthreads();
  if (own.terms > kMany) longest = own;
  if (own.terms > 0 && own.terms <= kFew)
    args.bins.add(bin, sum_by_lane(args.list.sources + i, own.terms), own.terms);
  add_by_warp(args, own, bin);
  __syncthreads();
  if (longest.terms == 0) return;
  const float sum = sum_by_block(args.list.sources + longest.first, longest.terms);
  if (own.terms > kMany) args.bins.add(bin, sum, own.terms);
}

// --- The kernel --------------------------------------------------------------------------------

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(cuda::preload(list_bins));
  PLANQ_TRY(cuda::preload_sort<List>());
  return cuda::preload(add_bins);
}

Status bind(const Call& call, Bound& bound) {
  const int64_t count = call.fields<Fields>().count;
  Scratch scratch(call.workspace);
  const Pieces pieces(count, scratch);
  ListArgs args = {Bins(call), pieces.lists[0], count,
                   static_cast<int64_t*>(call.operands[kOutside].data)};
  const cuda::Grid grid = {.blocks = std::max<int64_t>(cuda::ceil_div(count, kThreads), 1),
                           .threads = dim3(kThreads)};
  PLANQ_TRY(cuda::launch(list_bins, grid, args, bound));
  const int digits = count > 0 ? args.bins.digits() : 0;
  for (int digit = 0; digit < digits; ++digit) {
    const List &from = pieces.lists[digit % 2], &to = pieces.lists[(digit + 1) % 2];
    PLANQ_TRY(cuda::sort_by_digit(from, to, pieces.digits, count, digit * kDigitBits, bound));
    args.list = to;
  }
  return cuda::launch(add_bins, grid, args, bound);
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch counting;
  Pieces(descriptor.as<Fields>().count, counting);
  return counting.bytes();
}

// Bins have numbers of 32 bits, and a source has a thread of its own.
Reason rejects(const Descriptor& descriptor, const Device&) {
  constexpr int64_t kMostSources = int64_t{1} << 38;
  const Fields& f = descriptor.as<Fields>();
  if (f.shape.elements() > kMostBins)
    return Reason::refuse(ReasonKind::Shape, "takes at most ", kMostBins, " bins");
  if (f.count > kMostSources)
    return Reason::refuse(ReasonKind::Shape, "takes at most ", kMostSources, " sources");
  return Reason::accept();
}

constexpr Kernel kKernels[] = {{
    .op = "histogram_scatter_add",
    .body = "sorted",
    .revision = 1,
    .backend = Backend::Cuda,
    .arch = {80, kLastArch},
    .rank = 0,
    .guarantee = kGuarantee,
    .rejects = rejects,
    .workspace = workspace,
    .prepare = prepare,
    .bind = bind,
}};

}  // namespace

}  // namespace planq::histogram_scatter_add

PLANQ_KERNELS(histogram_scatter_add, cuda, kKernels);
