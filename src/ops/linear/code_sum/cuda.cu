// code_sum on CUDA: lines of neighbouring codes have some lanes each, which read aligned vectors;
// lines whose terms lie apart are read side by side. Sums are of unsigned codes: those with a sign
// are shifted to begin at 0, and the shift is taken off at the end.

#include <algorithm>
#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
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
  int64_t count;       // of lines, not of their columns
  int64_t step_bytes;  // of lines whose terms lie apart
  uint32_t shift;      // in every byte: turns the sign of its codes over
  std::int32_t most_negative;
  std::int32_t lanes;  // of a line: a power of two, at most a warp
  bool packed;
};

__device__ __forceinline__ std::int32_t without_shift(const Args& args, uint32_t sum) {
  const auto terms = static_cast<uint32_t>(args.lines.count);
  return static_cast<std::int32_t>(sum + terms * static_cast<uint32_t>(args.most_negative));
}

// The sum of a word's codes.
__device__ __forceinline__ uint32_t add_word(const Args& args, uint32_t word, uint32_t sum) {
  word ^= args.shift;
  if (!args.packed) return __dp4a(word, kOnes, sum);
  return __dp4a(math::high_nibbles(word), kOnes, __dp4a(math::low_nibbles(word), kOnes, sum));
}
// Of one byte; `codes` is how many of its two codes count, where it has two.
__device__ __forceinline__ uint32_t add_byte(const Args& args, const uint8_t* from, int64_t codes,
                                             uint32_t sum) {
  const uint32_t byte = (__ldg(from) ^ args.shift) & 0xFFu;
  if (!args.packed) return sum + byte;
  return sum + (byte & 0xFu) + (codes > 1 ? byte >> 4 : 0);
}

// Lanes `lane`, `lane` + lanes, ... of a line's vectors, and of the bytes before and after them.
__device__ __forceinline__ uint32_t add_line(const Args& args, const uint8_t* line, int lane) {
  const int64_t codes = args.lines.count, bytes = args.packed ? (codes + 1) / 2 : codes;
  const int64_t past = cuda::misalignment<cuda::kVectorBytes>(line);
  const int64_t head = min(past == 0 ? 0 : cuda::kVectorBytes - past, bytes);
  // The last byte of an odd number of 4-bit codes is not one of a vector's.
  const int64_t whole = args.packed && codes % 2 != 0 ? bytes - 1 : bytes;
  const int64_t vectors = max(whole - head, int64_t{0}) / cuda::kVectorBytes;
  const int per_code = args.packed ? 2 : 1;
  uint32_t sum = 0;
#pragma unroll 4
  for (int64_t i = lane; i < vectors; i += args.lanes) {
    const uint4 v = cuda::load_kept(line + head + i * cuda::kVectorBytes);
    sum = add_word(args, v.x, sum);
    sum = add_word(args, v.y, sum);
    sum = add_word(args, v.z, sum);
    sum = add_word(args, v.w, sum);
  }
  for (int64_t i = lane; i < head; i += args.lanes)
    sum = add_byte(args, line + i, codes - i * per_code, sum);
  for (int64_t i = head + vectors * cuda::kVectorBytes + lane; i < bytes; i += args.lanes)
    sum = add_byte(args, line + i, codes - i * per_code, sum);
  return sum;
}

__global__ void __launch_bounds__(kThreads) sum_lines(const __grid_constant__ Args args) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t index = thread / args.lanes;
  const int lane = static_cast<int>(threadIdx.x) % args.lanes;
  const bool exists = index < args.count;
  OffsetsOf<2> at{};
  uint32_t sum = 0;
  if (exists) {
    at = args.lines.space.offsets(index);
    sum = add_line(args, args.input + (args.packed ? at.at[0] / 2 : at.at[0]), lane);
  }
  for (int step = args.lanes / 2; step > 0; step /= 2)
    sum += __shfl_xor_sync(cuda::kAllLanes, sum, step);
  if (exists && lane == 0) args.output[at.at[1]] = without_shift(args, sum);
}

// Words of four bytes beside one another, and how many lines of terms a block reads at a time.
constexpr int kWords = 8, kDown = kThreads / kWords, kBatch = 4;
constexpr int kBlockBytes = 4 * kWords;

// Four bytes of which `count` exist.
__device__ __forceinline__ uint32_t load_word(const uint8_t* from, int64_t count) {
  if (count >= 4 && cuda::misalignment<4>(from) == 0)
    return __ldg(reinterpret_cast<const uint32_t*>(from));
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (i < count) word |= static_cast<uint32_t>(__ldg(from + i)) << 8 * i;
  return word;
}

// kCodes: in a word. A thread adds up the codes of one word of columns, the block its threads'
// sums.
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
  PLANQ_TRY(cuda::preload(sum_lines));
  PLANQ_TRY(cuda::preload(sum_columns<4>));
  return cuda::preload(sum_columns<8>);
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
    const int64_t vectors = cuda::ceil_div(bytes, cuda::kVectorBytes);
    args.lanes =
        static_cast<std::int32_t>(std::min<int64_t>(cuda::power_of_two(vectors), cuda::kWarp));
    const int64_t lines_of_block = kThreads / args.lanes;
    return cuda::launch(sum_lines, {cuda::ceil_div(count, lines_of_block), kThreads}, args, bound);
  }
  args.step_bytes = args.packed ? lines.step / 2 : lines.step;
  const int64_t blocks = count * cuda::ceil_div(bytes, kBlockBytes);
  return cuda::launch(args.packed ? sum_columns<8> : sum_columns<4>, {blocks, kThreads}, args,
                      bound);
}

Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }
std::size_t no_workspace(const Descriptor&, const Device&) { return 0; }

constexpr Kernel kKernels[] = {
    {.op = "code_sum",
     .method = "lines",
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
