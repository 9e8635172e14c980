#include "ops/linear/product_host.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/nibbles.h"

namespace planq::host {
namespace {

// The rows of a block; its sums have to fit in a stack of 64 KB, beside a panel.
constexpr std::int64_t kBlockRows = 96;

// Some rows and columns of a product, which one thread computes.
struct Block {
  std::int64_t row, rows, column, columns;
  std::int64_t pitch = 0;  // of its sums, from a row to the next
};

// The sums of the input's rows, which blocks beside one another share.
struct RowSums {
  std::int64_t row = -1;  // the first; -1: they are not known
  std::int32_t sum[kBlockRows + 32];
};

}  // namespace
}  // namespace planq::host

#define PLANQ_LOOPS_OF_BYTES
#define PLANQ_LOOPS "ops/linear/product_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {
namespace {

struct ProductLoops {
  std::int64_t (*columns)(const linear::Product& product, int threads);  // of a block
  void (*compute)(const linear::Product& product, Block block, RowSums& known);
};

const ProductLoops& product_loops() {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  static const bool vnni = has_vnni();
  static constexpr ProductLoops kVnni = {avx512_vnni::columns_of, avx512_vnni::compute_block};
  static constexpr ProductLoops kAvx512 = {avx512::columns_of, avx512::compute_block};
  static constexpr ProductLoops kAvx2 = {avx2::columns_of, avx2::compute_block};
  if (vnni) return kVnni;
  if (level == Level::Avx512) return kAvx512;
  if (level == Level::Avx2) return kAvx2;
#endif
  static constexpr ProductLoops kBaseline = {baseline::columns_of, baseline::compute_block};
  return kBaseline;
}

// Multiplications that are worth waking a thread for.
constexpr std::int64_t kGrain = 1 << 18;

}  // namespace

void multiply(const linear::Product& product, int threads) {
  if (product.empty()) return;
  const ProductLoops& loops = product_loops();
  const std::int64_t columns = loops.columns(product, threads);
  const std::int64_t down = (product.m + kBlockRows - 1) / kBlockRows;
  const std::int64_t across = (product.n + columns - 1) / columns;
  const std::int64_t work = columns * std::max<std::int64_t>(1, product.k) *
                            std::clamp<std::int64_t>(product.m / 8, 1, kBlockRows / 8);
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / work);
  parallel_for(threads, down * across * product.batch.size(), grain,
               [&](std::int64_t first, std::int64_t last) {
                 while (first < last) {
                   // Blocks of one product of the batch.
                   const std::int64_t index = first / (down * across),
                                      end = (index + 1) * down * across;
                   const linear::Product one = product.at(index);
                   RowSums known;
                   for (; first < std::min(last, end); ++first) {
                     const std::int64_t row = first / across % down * kBlockRows;
                     const std::int64_t column = first % across * columns;
                     loops.compute(one,
                                   {row, std::min(kBlockRows, one.m - row), column,
                                    std::min(columns, one.n - column)},
                                   known);
                   }
                 }
               });
}

}  // namespace planq::host
