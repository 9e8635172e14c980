#include "ops/linear/host/gemm.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "host/amx.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/nibbles.h"

namespace planq::host {
namespace {

// Rows of a block. Its sums have to fit in a stack of 64 KB, beside a panel and packed rows, or,
// where the input is not packed (direct), beside a panel. Sums in the output take no stack.
constexpr std::int64_t kBlockRows = 96, kDirectRows = 128, kMostRows = 1024;
// Bytes of the input's rows that stay in the cache while one panel after another reads them.
constexpr std::int64_t kNearRows = 1 << 20;
// Blocks for each thread, at least. More of them would be smaller.
constexpr std::int64_t kShares = 4;

// Rows and columns of a gemm that one thread computes at a time.
struct Block {
  std::int64_t row, rows, column, columns;
  bool amx = false;        // whether AMX takes part, in the loops of VNNI
  std::int64_t pitch = 0;  // of its sums, from a row to the next
};

// What the sums of rows begin at, which depends on the sums of the input's rows. Blocks of the same
// rows share it.
struct RowSums {
  std::int64_t row = 0, rows = 0;  // for which it is known
  std::int32_t start[kMostRows + 64];
};

}  // namespace
}  // namespace planq::host

#define PLANQ_LOOPS_OF_BYTES
#define PLANQ_LOOPS "ops/linear/host/int8_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {
namespace {

struct Int8Loops {
  // How many rows and columns a block has.
  std::int64_t (*rows)(const linear::Gemm& gemm, int threads, bool amx);
  std::int64_t (*columns)(const linear::Gemm& gemm, int threads);
  void (*compute)(const linear::Gemm& gemm, Block block, RowSums& known);
};

const Int8Loops& int8_loops() {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  static const bool vnni = has_vnni();
  static constexpr Int8Loops kVnni = {avx512_vnni::rows_of, avx512_vnni::columns_of,
                                      avx512_vnni::compute_block};
  static constexpr Int8Loops kAvx512 = {avx512::rows_of, avx512::columns_of, avx512::compute_block};
  static constexpr Int8Loops kAvx2 = {avx2::rows_of, avx2::columns_of, avx2::compute_block};
  if (vnni) return kVnni;
  if (level == Level::Avx512) return kAvx512;
  if (level == Level::Avx2) return kAvx2;
#endif
  static constexpr Int8Loops kBaseline = {baseline::rows_of, baseline::columns_of,
                                          baseline::compute_block};
  return kBaseline;
}

// Multiplications that make waking a thread worth it.
constexpr std::int64_t kGrain = 1 << 18;
// Bytes of weights that stay in the cache: a group of columns. Every row of blocks packs them
// again.
constexpr std::int64_t kShared = 1 << 18;

// The blocks of a gemm in the order of their computation: group after group of columns, and in a
// group row after row. Then memory is read for the weights once, and for the input once for each
// group. All columns are one group where that reads less: the input once, and the weights once for
// each row of blocks.
class Blocks {
 public:
  Blocks(const linear::Gemm& gemm, std::int64_t rows, std::int64_t columns, bool amx)
      : amx_(amx),
        m_(gemm.m),
        n_(gemm.n),
        rows_(rows),
        columns_(columns),
        down_((gemm.m + rows - 1) / rows),
        across_((gemm.n + columns - 1) / columns),
        group_(std::clamp<std::int64_t>(kShared / (columns * std::max<std::int64_t>(1, gemm.k)), 1,
                                        across_)) {
    if (rows * gemm.k <= kNearRows && down_ * n_ <= m_ * (across_ / group_)) group_ = across_;
  }

  std::int64_t count() const { return down_ * across_; }
  Block operator[](std::int64_t index) const {
    const std::int64_t first = index / (down_ * group_) * group_;
    const std::int64_t place = index - first * down_, group = std::min(group_, across_ - first);
    const std::int64_t row = place / group * rows_;
    const std::int64_t column = (first + place % group) * columns_;
    return {row, std::min(rows_, m_ - row), column, std::min(columns_, n_ - column), amx_};
  }

 private:
  bool amx_;
  std::int64_t m_, n_, rows_, columns_, down_, across_, group_;
};

}  // namespace

void multiply(const linear::Gemm& gemm, int threads) {
  if (gemm.empty()) return;
  const Int8Loops& loops = int8_loops();
  const bool amx = gemm.m >= kAmxRows && has_amx();
  const std::int64_t rows = loops.rows(gemm, threads, amx);
  const std::int64_t columns = loops.columns(gemm, threads);
  const Blocks blocks(gemm, rows, columns, amx);
  const std::int64_t work = columns * std::max<std::int64_t>(1, gemm.k) *
                            std::clamp<std::int64_t>(std::min(rows, gemm.m) / 8, 1, rows);
  parallel_for(threads, blocks.count() * gemm.batch.size(),
               std::max<std::int64_t>(1, kGrain / work),
               [&](std::int64_t first, std::int64_t last) {
                 while (first < last) {
                   const std::int64_t index = first / blocks.count();
                   const std::int64_t begin = index * blocks.count();
                   const std::int64_t end = std::min(last, begin + blocks.count());
                   const linear::Gemm one = gemm.at(index);
                   RowSums known;
                   for (; first < end; ++first) loops.compute(one, blocks[first - begin], known);
                 }
               });
}

}  // namespace planq::host
