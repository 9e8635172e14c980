// transform_layout on the host: blocks of 32 x 32 elements are read line by line, transposed if the
// frame is turned, and written line by line.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "host/bind.h"
#include "host/thread_pool.h"
#include "ops/outlier/transform_layout/desc.h"

namespace planq::transform_layout {
namespace {

using std::int64_t;

constexpr int kBlock = 32;
// Columns that follow one another in ColTuring.
constexpr int kQuad = 4;
// The fewest blocks that are worth waking a thread for.
constexpr int64_t kGrain = 64;

template <class E>
struct Block {
  E rows[kBlock][kBlock];
};

// A square of as many rows and columns as a vector has elements, which is transposed in registers.
template <class E>
class Square {
 public:
  static constexpr int kSize = 16 / static_cast<int>(sizeof(E));

  // Interleaving row i with row i + kSize / 2 exchanges one bit of the row's number with one bit of
  // the column's number. After a round for each bit, rows and columns are exchanged.
  static void turn(const E* from, E* to) {
    Vector rows[kSize];
    for (int i = 0; i < kSize; ++i) std::memcpy(&rows[i], from + i * kBlock, sizeof(Vector));
    for (int round = kSize; round > 1; round /= 2) {
      Vector next[kSize];
      for (int i = 0; i < kSize / 2; ++i) {
        next[2 * i] = zipped(rows[i], rows[i + kSize / 2], Lower{});
        next[2 * i + 1] = zipped(rows[i], rows[i + kSize / 2], Upper{});
      }
      std::copy_n(next, kSize, rows);
    }
    for (int i = 0; i < kSize; ++i) std::memcpy(to + i * kBlock, &rows[i], sizeof(Vector));
  }

 private:
  typedef E Vector __attribute__((vector_size(16)));
  // Shuffle indices that interleave two vectors: their lower halves, or their upper halves.
  template <std::size_t... kI>
  static constexpr std::index_sequence<(kI / 2 + kI % 2 * kSize)...> lower(
      std::index_sequence<kI...>);
  template <std::size_t... kI>
  static constexpr std::index_sequence<(kI / 2 + kSize / 2 + kI % 2 * kSize)...> upper(
      std::index_sequence<kI...>);
  using Lower = decltype(lower(std::make_index_sequence<kSize>{}));
  using Upper = decltype(upper(std::make_index_sequence<kSize>{}));

  template <std::size_t... kPlace>
  static Vector zipped(Vector a, Vector b, std::index_sequence<kPlace...>) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, kPlace...);
#else
    return __builtin_shuffle(a, b, Vector{static_cast<E>(kPlace)...});
#endif
  }
};

template <class E>
void turn(const Block<E>& from, Block<E>& to) {
  constexpr int kStep = Square<E>::kSize;
  for (int i = 0; i < kBlock; i += kStep)
    for (int j = 0; j < kBlock; j += kStep) Square<E>::turn(&from.rows[i][j], &to.rows[j][i]);
}

// Pieces mostly have one of two lengths, for which the compiler knows the size.
template <class E>
void copy(E* to, const E* from, int count) {
  if (count == kBlock)
    std::memcpy(to, from, kBlock * sizeof(E));
  else if (count == kQuad)
    std::memcpy(to, from, kQuad * sizeof(E));
  else
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(E));
}

// Calls visit(row, column, offset, count) for the pieces of consecutive elements of a block. The
// first row and column of the block are multiples of 32. `rows` and `columns` are the extents that
// the block may reach.
template <Layout kLayout, class Visit>
void each_piece(const MatrixLines& side, int64_t first_row, int64_t first_column, int64_t rows,
                int64_t columns, const Visit& visit) {
  const int row_count = static_cast<int>(std::min<int64_t>(rows - first_row, kBlock));
  const int column_count = static_cast<int>(std::min<int64_t>(columns - first_column, kBlock));
  constexpr int kStep = kLayout == Layout::ColTuring ? kQuad : kBlock;
  // The lines of a block usually have a single stride.
  const bool even = side.lines.rank <= 1;
  const int64_t stride = side.lines.rank == 1 ? side.lines.axes[0].stride[0] : 0;
  const int64_t origin =
      kLayout == Layout::Row ? first_row : first_column / kBlock * side.panel_lines + first_row;
  const int64_t column_offset = kLayout == Layout::Row ? first_column : 0;
  for (int row = 0; row < row_count; ++row)
    for (int column = 0; column < column_count; column += kStep) {
      const auto place =
          outlier::panel_place(kLayout, static_cast<unsigned>(row), static_cast<unsigned>(column));
      const int64_t line = origin + place.line;
      const int64_t start = even ? line * stride : side.line_at(line);
      visit(row, column, start + column_offset + place.at, std::min(column_count - column, kStep));
    }
}

template <class E>
class Transform {
 public:
  Transform(const Fields& fields, const Operands& operands)
      : frame_(fields, operands),
        input_(static_cast<const E*>(operands[kInput].data)),
        output_(static_cast<E*>(operands[kOutput].data)),
        across_(blocks(frame_.output.held_columns())),
        down_(blocks(frame_.output.held_rows())) {}

  void run(int threads) const {
    host::parallel_for(threads, across_ * down_, kGrain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) run_block(i / across_ * kBlock, i % across_ * kBlock);
    });
  }

 private:
  static int64_t blocks(int64_t extent) { return outlier::rounded_up(extent, kBlock) / kBlock; }

  // Reads a block; elements outside of the matrix are 0.
  void read(int64_t row, int64_t column, Block<E>& block) const {
    const MatrixLines& side = frame_.input;
    if (row + kBlock > side.rows || column + kBlock > side.columns) block = {};
    by_layout(side.layout, [&](auto layout) {
      each_piece<layout.value>(side, row, column, side.rows, side.columns,
                               [&](int i, int j, int64_t offset, int count) {
                                 copy(&block.rows[i][j], input_ + offset, count);
                               });
    });
  }
  void write(int64_t row, int64_t column, const Block<E>& block) const {
    const MatrixLines& side = frame_.output;
    by_layout(side.layout, [&](auto layout) {
      each_piece<layout.value>(side, row, column, side.held_rows(), side.held_columns(),
                               [&](int i, int j, int64_t offset, int count) {
                                 copy(output_ + offset, &block.rows[i][j], count);
                               });
    });
  }
  void run_block(int64_t row, int64_t column) const {
    Block<E> block;
    if (frame_.turned) {
      Block<E> other;
      read(column, row, other);
      turn(other, block);
    } else {
      read(row, column, block);
    }
    write(row, column, block);
  }

  const Frame frame_;
  const E* const input_;
  E* const output_;
  const int64_t across_, down_;
};

template <class E>
Status compute(const Call& call, const Stream& stream) {
  Transform<E>(call.fields<Fields>(), call.operands).run(stream.threads);
  return Status::success();
}

template <DType kDType, class E>
constexpr Kernel make_kernel() {
  return {.op = "transform_layout",
          .body = "blocks",
          .dtypes = kDTypes<kDType>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kDType>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<E>>};
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Int8, std::uint8_t>(),
    make_kernel<DType::Int32, std::uint32_t>(),
};

}  // namespace

}  // namespace planq::transform_layout

PLANQ_KERNELS(transform_layout, host, kKernels);
