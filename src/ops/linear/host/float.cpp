#include <algorithm>
#include <cstring>
#include <utility>

#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/tensor_core.h"
#include "ops/linear/host/gemm.h"
#include "ops/linear/weight_only/codes.h"
#include "ops/packing/fragment_order.h"
#include "ops/packing/mixed_dtype_layout.h"

namespace planq::host {
namespace {

// Rows of a block. Its sums have to fit in a stack of 64 KB, beside a panel. GroupsSm90 has two
// sums of each output.
constexpr std::int64_t kBlockRows = 96, kGroupRows = 64;
constexpr std::int64_t block_rows(Accumulation accumulation) {
  return accumulation == Accumulation::GroupsSm90 ? kGroupRows : kBlockRows;
}

// Rows and columns of a gemm that one thread computes at a time.
struct Block {
  std::int64_t row, rows, column, columns;
};

}  // namespace
}  // namespace planq::host

#define PLANQ_LOOPS "ops/linear/host/float_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {
namespace {

struct FloatLoops {
  std::int64_t columns;  // of a block
  void (*compute)(const linear::Gemm& gemm, Accumulation accumulation, Block block);
};

const FloatLoops& float_loops() {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  static constexpr FloatLoops kAvx512 = {avx512::floating::kPanelColumns,
                                         avx512::floating::compute_block};
  static constexpr FloatLoops kAvx2 = {avx2::floating::kPanelColumns,
                                       avx2::floating::compute_block};
  if (level == Level::Avx512) return kAvx512;
  if (level == Level::Avx2) return kAvx2;
#endif
  static constexpr FloatLoops kBaseline = {baseline::floating::kPanelColumns,
                                           baseline::floating::compute_block};
  return kBaseline;
}

// Multiplications that make waking a thread worth it.
constexpr std::int64_t kGrain = 1 << 16;

}  // namespace

void multiply_floats(const linear::Gemm& gemm, Accumulation accumulation, int threads) {
  if (gemm.empty()) return;
  const FloatLoops& loops = float_loops();
  // Blocks go down the rows first, so that those in turn read the same weights.
  const std::int64_t rows = block_rows(accumulation);
  const std::int64_t down = (gemm.m + rows - 1) / rows;
  const std::int64_t across = (gemm.n + loops.columns - 1) / loops.columns;
  const std::int64_t work =
      std::min(gemm.m, rows) * loops.columns * std::max<std::int64_t>(1, gemm.k);
  parallel_for(threads, down * across * gemm.batch.size(), std::max<std::int64_t>(1, kGrain / work),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t i = first; i < last; ++i) {
                   const std::int64_t place = i % (down * across);
                   const std::int64_t row = place % down * rows;
                   const std::int64_t column = place / down * loops.columns;
                   loops.compute(gemm.at(i / (down * across)), accumulation,
                                 {row, std::min(rows, gemm.m - row), column,
                                  std::min(loops.columns, gemm.n - column)});
                 }
               });
}

}  // namespace planq::host
