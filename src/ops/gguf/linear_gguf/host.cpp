// linear_gguf on the host: the input is copied span by span, and blocks of the output are computed
// from it and from the weights as they lie in memory.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "host/bind.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/gguf/blocks.h"
#include "ops/gguf/linear_gguf/desc.h"
#include "ops/gguf/linear_gguf/host_input.h"

namespace planq::linear_gguf {

using linear::Gemm;
using std::int64_t;

}  // namespace planq::linear_gguf

#define PLANQ_LOOPS_OF_BYTES
#define PLANQ_LOOPS "ops/gguf/linear_gguf/host_loops.h"
#include "host/instruction_sets.h"

namespace planq::linear_gguf {
namespace {

const Loops& loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  static const bool vnni = host::has_vnni();
  if (vnni) return avx512_vnni::kLoops;
  if (level != host::Level::Baseline) return avx2::kLoops;
#endif
  return baseline::kLoops;
}

// Multiplications that make waking a thread worth it, and codes of the input.
constexpr int64_t kGrain = 1 << 18, kFillGrain = 1 << 16;
// Blocks for each thread, at least.
constexpr int64_t kShares = 4;

constexpr int64_t pieces_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

// All rows of the input, as spans.
struct Input {
  InputSpan* spans;
  int64_t rows;
  bool has_least;  // whether a code is -128
};

Input filled(GgufType type, const Gemm& all, int threads, const Workspace& workspace) {
  Scratch scratch(workspace);
  const int64_t rows = all.m * all.batch.size(), count = spans_of(all.k) * rows;
  auto* const spans = scratch.take<InputSpan>(static_cast<std::size_t>(count));
  std::atomic<bool> has_least = false;
  host::parallel_for(threads, count, kFillGrain / kSpan, [&](int64_t first, int64_t last) {
    bool least = false;
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i % rows;
      const Gemm one = all.at(row / all.m);
      least |= loops().fill(type, one, row % all.m, i / rows * kSpan, spans[i]);
    }
    if (least) has_least.store(true, std::memory_order_relaxed);
  });
  return {spans, rows, has_least.load(std::memory_order_relaxed)};
}

// The blocks of a product, in the order of their computation: those of a row of blocks share their
// weights.
struct Blocks {
  int64_t m, n, rows, columns, down, across;

  Blocks(const Gemm& all, int threads)
      : m(all.m), n(all.n), columns(loops().columns), across(pieces_of(n, columns)) {
    const int64_t least = pieces_of(kShares * threads, across * all.batch.size());
    down = std::max(pieces_of(m, kMostRows), threads > 1 ? std::min(least, m / 16) : 1);
    rows = pieces_of(m, down);
    down = pieces_of(m, rows);
  }
  int64_t count() const { return across * down; }
  // One of a gemm whose first row is that row of the input.
  Block at(int64_t index, int64_t first_row, const Input& input) const {
    const int64_t row = index % down * rows, column = index / down * columns;
    return {row,
            std::min(rows, m - row),
            column,
            std::min(columns, n - column),
            input.spans + first_row + row,
            input.rows,
            input.has_least};
  }
};

template <DType kOutputType>
Status compute(const Call& call, const Stream& stream) {
  const GgufType type = call.fields<Fields>().type;
  const Gemm all = gemm_of(call);
  if (all.empty()) return Status::success();
  const Input input = filled(type, all, stream.threads, call.workspace);
  const Blocks blocks(all, stream.threads);
  const int64_t work =
      blocks.columns * std::max<int64_t>(1, all.k) * std::max<int64_t>(1, blocks.rows / 8);
  host::parallel_for(stream.threads, blocks.count() * all.batch.size(),
                     std::max<int64_t>(1, kGrain / work), [&](int64_t first, int64_t last) {
                       for (int64_t i = first; i < last; ++i) {
                         const int64_t index = i / blocks.count();
                         loops().compute(type, all.at(index),
                                         blocks.at(i % blocks.count(), index * all.m, input));
                       }
                     });
  return Status::success();
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  const Shape& input = descriptor.as<Fields>().input_shape;
  auto count = static_cast<std::size_t>(spans_of(input.last()));
  for (int axis = 0; axis + 1 < input.rank; ++axis) count *= static_cast<std::size_t>(input[axis]);
  Scratch scratch;
  scratch.take<InputSpan>(count);
  return scratch.bytes();
}

template <DType kOutputType>
constexpr Kernel kBlocks = kernel<kOutputType, Backend::Host>(
    nothing_to_prepare, host::bind<compute<kOutputType>>, workspace);

constexpr Kernel kKernels[] = {kBlocks<DType::Float16>, kBlocks<DType::BFloat16>,
                               kBlocks<DType::Float32>, kernel_of_parts<Backend::Host>()};

}  // namespace
}  // namespace planq::linear_gguf

PLANQ_KERNELS(linear_gguf, host, kKernels);
