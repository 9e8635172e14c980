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
};

}  // namespace
}  // namespace planq::host

#define PLANQ_LOOPS_OF_BYTES
#define PLANQ_LOOPS "ops/linear/product_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {
namespace {

struct ProductLoops {
  std::int64_t columns;  // of a block
  void (*compute)(const linear::Product& product, const Block& block);
};

const ProductLoops& product_loops() {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  static const bool vnni = has_vnni();
  static constexpr ProductLoops kVnni = {avx512_vnni::kColumns, avx512_vnni::compute_block};
  static constexpr ProductLoops kAvx512 = {avx512::kColumns, avx512::compute_block};
  static constexpr ProductLoops kAvx2 = {avx2::kColumns, avx2::compute_block};
  if (vnni) return kVnni;
  if (level == Level::Avx512) return kAvx512;
  if (level == Level::Avx2) return kAvx2;
#endif
  static constexpr ProductLoops kBaseline = {baseline::kColumns, baseline::compute_block};
  return kBaseline;
}

// Multiplications that are worth waking a thread for.
constexpr std::int64_t kGrain = 1 << 18;

}  // namespace

void multiply(const linear::Product& product, int threads) {
  if (product.empty()) return;
  const ProductLoops& loops = product_loops();
  const std::int64_t down = (product.m + kBlockRows - 1) / kBlockRows;
  const std::int64_t across = (product.n + loops.columns - 1) / loops.columns;
  const std::int64_t work = loops.columns * std::max<std::int64_t>(1, product.k) *
                            std::clamp<std::int64_t>(product.m / 8, 1, kBlockRows / 8);
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / work);
  parallel_for(threads, down * across * product.batch.size(), grain,
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t i = first; i < last; ++i) {
                   const linear::Product one = product.at(i / (down * across));
                   const std::int64_t row = i / across % down * kBlockRows;
                   const std::int64_t column = i % across * loops.columns;
                   loops.compute(one, {row, std::min(kBlockRows, one.m - row), column,
                                       std::min(loops.columns, one.n - column)});
                 }
               });
}

}  // namespace planq::host
