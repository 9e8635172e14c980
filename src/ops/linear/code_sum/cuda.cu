// code_sum on CUDA. If the terms of a line are neighbours, a team of threads adds up each line and
// reads aligned vectors. If they lie apart, neighbouring lines are read side by side. Kernels add
// unsigned codes: signed ones are shifted so that the least is 0, and the sum is corrected in the
// end.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"
#include "math/nibbles.h"
#include "ops/linear/code_sum/lines.h"

namespace planq::code_sum {
namespace {

using std::int64_t;
using std::uint32_t;
using std::uint8_t;

constexpr int kThreads = 256;
constexpr uint32_t kOnes = 0x01010101u;

struct Args {
  const uint8_t* input;
  std::int32_t* output;
  Lines lines;
  int64_t count;       // of lines, without their columns
  int64_t step_bytes;  // if the terms of a line lie apart: bytes from a term to the next
  uint32_t shift;      // flips the sign bit of every code in a word
  std::int32_t most_negative;
  std::int32_t team_log2;  // threads that share a line
  bool packed;
};

__device__ __forceinline__ std::int32_t without_shift(const Args& args, uint32_t sum) {
  const auto terms = static_cast<uint32_t>(args.lines.count);
  return static_cast<std::int32_t>(sum + terms * static_cast<uint32_t>(args.most_negative));
}

// Adds the codes of a word to a sum. kPacked: two codes in a byte.
template <bool kPacked>
__device__ __forceinline__ uint32_t add_word(const Args& args, uint32_t word, uint32_t sum) {
  word ^= args.shift;
  if constexpr (!kPacked) return __dp4a(word, kOnes, sum);
  return __dp4a(math::high_nibbles(word), kOnes, __dp4a(math::low_nibbles(word), kOnes, sum));
}
// Adds one byte. `codes`: how many codes the line has from there on; with two in a byte, the second
// may not exist.
template <bool kPacked>
__device__ __forceinline__ uint32_t add_byte(const Args& args, const uint8_t* from, int64_t codes,
                                             uint32_t sum) {
  const uint32_t byte = (__ldg(from) ^ args.shift) & 0xFFu;
  if constexpr (!kPacked) return sum + byte;
  return sum + (byte & 0xFu) + (codes > 1 ? byte >> 4 : 0);
}

// Vectors of a line that a thread loads at a time.
constexpr int kUnderWay = 8;
constexpr int kBlocks = 4;  // on a multiprocessor
constexpr int kMostCluster = 8;

// Adds up vectors `rank`, rank + team, and so on of a line.
template <bool kPacked>
__device__ __forceinline__ uint32_t add_vectors(const Args& args, const uint8_t* from,
                                                int64_t vectors, int rank, int team) {
  uint32_t sum = 0;
#pragma unroll 1
  for (int64_t first = rank; first < vectors; first += kUnderWay * team) {
    uint4 v[kUnderWay];
#pragma unroll
    for (int k = 0; k < kUnderWay; ++k) {
      const int64_t i = first + k * team;
      v[k] = make_uint4(args.shift, args.shift, args.shift, args.shift);  // stands for codes of 0
      if (i < vectors) v[k] = cuda::load_once(from + i * cuda::kVectorBytes);
    }
#pragma unroll
    for (int k = 0; k < kUnderWay; ++k) {
      sum = add_word<kPacked>(args, v[k].x, sum);
      sum = add_word<kPacked>(args, v[k].y, sum);
      sum = add_word<kPacked>(args, v[k].z, sum);
      sum = add_word<kPacked>(args, v[k].w, sum);
    }
  }
  return sum;
}

// Adds up a thread's part of a line: vectors, and bytes before and behind them.
template <bool kPacked>
__device__ __forceinline__ uint32_t add_line(const Args& args, const uint8_t* line, int rank,
                                             int team) {
  const int64_t codes = args.lines.count, bytes = kPacked ? (codes + 1) / 2 : codes;
  const int64_t past = cuda::misalignment<cuda::kVectorBytes>(line);
  const int64_t head = min(past == 0 ? 0 : cuda::kVectorBytes - past, bytes);
  // With an odd number of 4-bit codes, the last byte holds one code and must not be part of a
  // vector.
  const int64_t whole = kPacked && codes % 2 != 0 ? bytes - 1 : bytes;
  const int64_t vectors = max(whole - head, int64_t{0}) / cuda::kVectorBytes;
  constexpr int kPerByte = kPacked ? 2 : 1;
  uint32_t sum = add_vectors<kPacked>(args, line + head, vectors, rank, team);
  for (int64_t i = rank; i < head; i += team)
    sum = add_byte<kPacked>(args, line + i, codes - i * kPerByte, sum);
  for (int64_t i = head + vectors * cuda::kVectorBytes + rank; i < bytes; i += team)
    sum = add_byte<kPacked>(args, line + i, codes - i * kPerByte, sum);
  return sum;
}

// Adds up a thread's part of line `index`. Sets `output` to where the sum of the line belongs.
template <bool kPacked>
__device__ __forceinline__ uint32_t add_own_line(const Args& args, int64_t index, int rank,
                                                 int team, int64_t& output) {
  const auto& space = args.lines.space;
  OffsetsOf<2> at{};
  if (space.rank == 1)
    at = {index * space.axes[0].stride[0], index * space.axes[0].stride[1]};
  else
    at = space.offsets(index);
  output = at.at[1];
  return add_line<kPacked>(args, args.input + (kPacked ? at.at[0] / 2 : at.at[0]), rank, team);
}

// The sum of a team of 2^team_log2 threads, in its first one. The whole block calls this.
__device__ __forceinline__ uint32_t sum_team(uint32_t sum, int team_log2) {
  constexpr int kWarps = kThreads / cuda::kWarp, kWarpLog2 = 5;
  __shared__ uint32_t of_warps[kWarps];
  if (team_log2 < kWarpLog2) {
    for (int step = 1 << team_log2 >> 1; step > 0; step /= 2)
      sum += __shfl_xor_sync(cuda::kAllLanes, sum, step);
    return sum;
  }
  sum = __reduce_add_sync(cuda::kAllLanes, sum);
  if (team_log2 == kWarpLog2) return sum;
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  if (threadIdx.x % cuda::kWarp == 0) of_warps[warp] = sum;
  __syncthreads();
  for (int i = 1; i < 1 << (team_log2 - kWarpLog2); ++i) sum += of_warps[(warp + i) % kWarps];
  return sum;
}

template <bool kPacked>
__global__ void __launch_bounds__(kThreads, kBlocks) sum_lines(const __grid_constant__ Args args) {
  const int team = 1 << args.team_log2, rank = static_cast<int>(threadIdx.x) & (team - 1);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads >> args.team_log2);
  const int64_t index = first + (static_cast<int>(threadIdx.x) >> args.team_log2);
  const bool exists = index < args.count;
  int64_t output = 0;
  uint32_t sum = 0;
  if (exists) sum = add_own_line<kPacked>(args, index, rank, team, output);
  sum = sum_team(sum, args.team_log2);
  if (exists && rank == 0) args.output[output] = without_shift(args, sum);
}

// For few long lines: the blocks of a cluster share a line. The first block gets the sums of all.
template <bool kPacked>
__global__ void __launch_bounds__(kThreads, kBlocks)
    sum_long_lines(const __grid_constant__ Args args) {
  __shared__ uint32_t of_blocks[kMostCluster];
  __shared__ cuda::Mailbox mail;
  const int cluster = cuda::cluster_size(), block = cuda::cluster_rank();
  if (threadIdx.x == 0) mail.expect(static_cast<uint32_t>(cluster) * sizeof(uint32_t));
  cuda::cluster_arrive_unordered();
  int64_t output = 0;
  uint32_t sum = add_own_line<kPacked>(args, cuda::cluster_index(),
                                       block * kThreads + static_cast<int>(threadIdx.x),
                                       cluster * kThreads, output);
  sum = sum_team(sum, args.team_log2);
  cuda::cluster_wait();  // until every block expects its mail
  if (threadIdx.x != 0) return;
  mail.send(&of_blocks[block], 0, sum);
  if (block != 0) return;
  mail.wait();
  sum = 0;
  for (int i = 0; i < cluster; ++i) sum += of_blocks[i];
  args.output[output] = without_shift(args, sum);
}

// Of lines whose terms lie apart, a block reads kWords words side by side, of kDown terms at a
// time.
constexpr int kWords = 8, kDown = kThreads / kWords, kBatch = 4;
constexpr int kBlockBytes = 4 * kWords;

// Loads four bytes, of which `count` exist.
__device__ __forceinline__ uint32_t load_word(const uint8_t* from, int64_t count) {
  if (count >= 4 && cuda::misalignment<4>(from) == 0)
    return __ldg(reinterpret_cast<const uint32_t*>(from));
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (i < count) word |= static_cast<uint32_t>(__ldg(from + i)) << 8 * i;
  return word;
}

// kCodes: codes in a word. A thread adds up the lines of one word, over every kDown-th term. The
// block adds up its threads' sums.
template <int kCodes>
__global__ void __launch_bounds__(kThreads) sum_columns(const __grid_constant__ Args args) {
  __shared__ uint32_t partial[kDown][kWords * kCodes];
  const int word = static_cast<int>(threadIdx.x) % kWords;
  const int down = static_cast<int>(threadIdx.x) / kWords;
  const int64_t columns = args.lines.columns, bytes = args.packed ? (columns + 1) / 2 : columns;
  const int64_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
  const OffsetsOf<2> at = args.lines.space.offsets(blockIdx.x / blocks);
  const int64_t first = blockIdx.x % blocks * kBlockBytes + word * 4;
  const uint8_t* from = args.input + (args.packed ? at.at[0] / 2 : at.at[0]) + first;
  uint32_t sums[kCodes] = {};
#pragma unroll kBatch
  for (int64_t term = down; term < args.lines.count; term += kDown) {
    const uint32_t codes = load_word(from + term * args.step_bytes, bytes - first) ^ args.shift;
    const uint32_t low = kCodes == 8 ? math::low_nibbles(codes) : codes;
    const uint32_t high = math::high_nibbles(codes);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i * (kCodes / 4)] += low >> 8 * i & 0xFFu;
      if constexpr (kCodes == 8) sums[i * 2 + 1] += high >> 8 * i & 0xFFu;
    }
  }
#pragma unroll
  for (int i = 0; i < kCodes; ++i) partial[down][word * kCodes + i] = sums[i];
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  const int64_t column = blockIdx.x % blocks * (kWords * kCodes) + mine;
  if (mine >= kWords * kCodes || column >= columns) return;
  uint32_t sum = 0;
  for (int i = 0; i < kDown; ++i) sum += partial[i][mine];
  args.output[at.at[1] + column] = without_shift(args, sum);
}

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(cuda::preload(sum_lines<false>));
  PLANQ_TRY(cuda::preload(sum_lines<true>));
  PLANQ_TRY(cuda::preload(sum_long_lines<false>));
  PLANQ_TRY(cuda::preload(sum_long_lines<true>));
  PLANQ_TRY(cuda::preload(sum_columns<4>));
  return cuda::preload(sum_columns<8>);
}

// Threads of a line: so many that each has kUnderWay vectors, but a warp at least. If that is more
// than a block, and if there are fewer lines than the GPU runs blocks at a time, the blocks of a
// cluster share a line.
Status launch_lines(Args& args, int64_t vectors, const Device& device, Bound& bound) {
  const int64_t lanes = std::min<int64_t>(cuda::power_of_two(vectors), cuda::kWarp);
  const int64_t busy = cuda::power_of_two(cuda::ceil_div(vectors, kUnderWay));
  const int64_t team = std::clamp<int64_t>(busy, lanes, kThreads);
  args.team_log2 = std::countr_zero(static_cast<uint32_t>(team));
  const int64_t slots = int64_t{device.multiprocessors} * kBlocks;
  int cluster = 1;
  while (device.arch >= 90 && cluster < kMostCluster && 2 * cluster * kThreads <= busy &&
         2 * cluster * args.count <= slots)
    cluster *= 2;
  if (cluster > 1) {
    const cuda::Grid grid{args.count * cluster, kThreads, cluster};
    return cuda::launch(args.packed ? sum_long_lines<true> : sum_long_lines<false>, grid, args,
                        bound);
  }
  const cuda::Grid grid{cuda::ceil_div(args.count, kThreads / team), kThreads};
  return cuda::launch(args.packed ? sum_lines<true> : sum_lines<false>, grid, args, bound);
}

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  Args args{};
  args.input = static_cast<const uint8_t*>(call.operands[kInput].data);
  args.output = static_cast<std::int32_t*>(call.operands[kOutput].data);
  args.lines = lines_of(call);
  args.packed = is_four_bit(f.input_dtype);
  if (f.input_dtype == DType::Int8) args.shift = 0x80 * kOnes, args.most_negative = -0x80;
  if (f.input_dtype == DType::Int4) args.shift = 0x88 * kOnes, args.most_negative = -8;
  const Lines& lines = args.lines;
  const int64_t count = args.count = lines.space.size();
  if (count * lines.columns == 0) return Status::success();
  const int64_t bytes = [&](int64_t codes) {
    return args.packed ? cuda::ceil_div(codes, 2) : codes;
  }(f.shape.last());
  if (f.axis == f.shape.rank - 1) {
    return launch_lines(args, cuda::ceil_div(bytes, cuda::kVectorBytes), call.device, bound);
  }
  args.step_bytes = args.packed ? lines.step / 2 : lines.step;
  const int64_t blocks = count * cuda::ceil_div(bytes, kBlockBytes);
  return cuda::launch(args.packed ? sum_columns<8> : sum_columns<4>, {blocks, kThreads}, args,
                      bound);
}

Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }

constexpr Kernel kKernels[] = {
    {.op = "code_sum",
     .body = "lines",
     .revision = 1,
     .backend = Backend::Cuda,
     .arch = {80},
     .rank = 0,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = MathPrecision::Int32,
                   .accumulator = DType::Int32,
                   .rounding = Rounding::None,
                   .max_ulp = 0,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "exact integer sums"},
     .rejects = accept,
     .workspace = no_workspace,
     .prepare = prepare,
     .bind = bind},
};

}  // namespace
}  // namespace planq::code_sum

PLANQ_KERNELS(code_sum, cuda, kKernels);
