// The input is copied span by span, once for each type of blocks, and blocks of the outputs are
// computed from it and from the weights.
#include "ops/gguf/products/host_products.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/gguf/blocks.h"
#include "ops/gguf/products/host_input.h"

namespace planq::gguf::products {

using linear::Gemm;
using std::int64_t;

}  // namespace planq::gguf::products

#define PLANQ_LOOPS_OF_BYTES
#define PLANQ_LOOPS "ops/gguf/products/host_loops.h"
#include "host/instruction_sets.h"

namespace planq::gguf {
namespace products {
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

// All rows of the input, as spans. Weights of different types want different ones.
class Input {
 public:
  Input(std::span<const Product> products, int threads, const Workspace& workspace)
      : products_(products) {
    const Gemm& any = products[0].gemm;
    rows_ = any.m * any.batch.size();
    count_ = spans_of(any.k) * rows_;
    Scratch scratch(workspace);
    std::size_t own[kMostProducts];  // products that are the first of their type
    int64_t types = 0;
    for (std::size_t i = 0; i < products.size(); ++i) {
      std::size_t first = 0;
      while (products[first].type != products[i].type) ++first;
      spans_[i] =
          first < i ? spans_[first] : scratch.take<InputSpan>(static_cast<std::size_t>(count_));
      if (first == i) own[types++] = i;
    }
    host::parallel_for(threads, types * count_, kFillGrain / kSpan,
                       [&](int64_t first, int64_t last) {
                         bool least = false;
                         for (int64_t i = first; i < last; ++i)
                           least |= fill(own[i / count_], i % count_);
                         if (least) has_least_.store(true, std::memory_order_relaxed);
                       });
  }

  int64_t rows() const { return rows_; }
  const InputSpan* spans(std::size_t product) const { return spans_[product]; }
  bool has_least() const { return has_least_.load(std::memory_order_relaxed); }

 private:
  // Says whether a code is -128.
  bool fill(std::size_t product, int64_t span) {
    const auto& [type, gemm] = products_[product];
    const int64_t row = span % rows_;
    return loops().fill(type, gemm.at(row / gemm.m), row % gemm.m, span / rows_ * kSpan,
                        spans_[product][span]);
  }

  std::span<const Product> products_;
  int64_t rows_ = 0, count_ = 0;  // count_: spans for one type
  InputSpan* spans_[kMostProducts] = {};
  std::atomic<bool> has_least_ = false;
};

// The blocks of all products, in the order of their computation: a product after another, and
// blocks that share their weights after one another.
class Blocks {
 public:
  Blocks(std::span<const Product> products, int threads)
      : products_(products), m_(products[0].gemm.m), columns_(loops().columns) {
    const int64_t batches = products[0].gemm.batch.size();
    int64_t across = 0;
    for (const Product& product : products) across += pieces_of(product.gemm.n, columns_);
    const int64_t least = pieces_of(kShares * threads, std::max<int64_t>(1, across * batches));
    down_ = std::max(pieces_of(m_, kMostRows), threads > 1 ? std::min(least, m_ / 16) : 1);
    rows_ = pieces_of(m_, down_);
    down_ = pieces_of(m_, rows_);
    count_ = across * down_ * batches;
  }

  int64_t count() const { return count_; }
  // Multiplications of one, those of a few rows counted less.
  int64_t work() const {
    return columns_ * std::max<int64_t>(1, products_[0].gemm.k) * std::max<int64_t>(1, rows_ / 8);
  }

  void compute(int64_t first, int64_t last, const Input& input) const {
    int64_t begin = 0;  // of the product's blocks
    for (std::size_t i = 0; i < products_.size() && begin < last; ++i) {
      const Gemm& gemm = products_[i].gemm;
      const int64_t each = pieces_of(gemm.n, columns_) * down_,
                    end = begin + each * gemm.batch.size();
      for (int64_t at = std::max(first, begin); at < std::min(last, end); ++at) {
        const int64_t batch = (at - begin) / each;
        products::loops().compute(
            products_[i].type, gemm.at(batch),
            block((at - begin) % each, gemm.n, input.spans(i) + batch * m_, input));
      }
      begin = end;
    }
  }

 private:
  // `spans`: of the first row of its gemm.
  Block block(int64_t index, int64_t n, const InputSpan* spans, const Input& input) const {
    const int64_t row = index % down_ * rows_, column = index / down_ * columns_;
    return {row,
            std::min(rows_, m_ - row),
            column,
            std::min(columns_, n - column),
            spans + row,
            input.rows(),
            input.has_least()};
  }

  std::span<const Product> products_;
  int64_t m_, columns_, rows_ = 0, down_ = 0, count_ = 0;
};

}  // namespace
}  // namespace products

void multiply(std::span<const Product> products, int threads, const Workspace& workspace) {
  const linear::Gemm& any = products[0].gemm;
  if (any.m == 0 || any.batch.size() == 0) return;
  const products::Input input(products, threads, workspace);
  const products::Blocks blocks(products, threads);
  host::parallel_for(
      threads, blocks.count(), std::max<std::int64_t>(1, products::kGrain / blocks.work()),
      [&](std::int64_t first, std::int64_t last) { blocks.compute(first, last, input); });
}

std::size_t workspace_of_products(const Shape& input, int types) {
  auto count = static_cast<std::size_t>(products::spans_of(input.last()));
  for (int axis = 0; axis + 1 < input.rank; ++axis) count *= static_cast<std::size_t>(input[axis]);
  Scratch scratch;
  for (int type = 0; type < types; ++type) scratch.take<products::InputSpan>(count);
  return scratch.bytes();
}

}  // namespace planq::gguf
