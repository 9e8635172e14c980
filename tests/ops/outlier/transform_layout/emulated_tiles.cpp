// The device's tiles on a CPU: what the threads of a block do, one after another, for every pair of
// layouts and a few sizes. Prints how many elements it compared and how many were wrong, and how
// often two lanes of a warp met in a bank of shared memory.
#include <cstdint>
#include <cstdio>
#include <set>
#include <vector>

#include "ops/outlier/transform_layout/tiles.cuh"

namespace {

using namespace planq;
using namespace planq::transform_layout;
using std::int64_t;
using std::uint32_t;

int64_t compared = 0, wrong = 0, conflicts = 0;

MatrixLines lines_for(Layout layout, int64_t rows, int64_t columns, int64_t gap, int64_t& size) {
  const outlier::MatrixShape matrix(rows, columns);
  const Shape shape = outlier::buffer_shape(layout, matrix);
  OperandView view;
  view.strides = {shape[1] + gap, 1};
  size = shape[0] * (shape[1] + gap);
  return outlier::lines_of(layout, matrix, shape, view);
}

// The lanes of each warp at one instruction: banks that two different words share.
void meet(const std::vector<unsigned>& slots) {
  for (std::size_t warp = 0; warp < slots.size(); warp += 32) {
    std::set<unsigned> banks, words;
    for (std::size_t lane = warp; lane < warp + 32; ++lane) {
      words.insert(slots[lane]);
      banks.insert(slots[lane] % 32);
    }
    conflicts += static_cast<int64_t>(words.size() - banks.size());
  }
}

template <class E, Layout kLayout, bool kTurned>
void watch_slots() {
  using T = Tile<E>;
  std::set<unsigned> all;
  for (unsigned i = 0; i < kWordsOfThread; ++i) {
    std::vector<unsigned> slots;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      if constexpr (kTurned && sizeof(E) == 1) {
        const TileWord word = square_of<kLayout>(thread + i / 4 * kThreads);
        slots.push_back(T::slot(word.column + i % 4, word.row / 4));
      } else {
        const TileWord word = word_of<E, kLayout>(thread + i * kThreads);
        slots.push_back(kTurned ? T::slot(word.column, word.row)
                                : T::slot(word.row, word.column / T::kPerWord));
      }
    }
    meet(slots);
    all.insert(slots.begin(), slots.end());
  }
  // Every word of the tile once.
  wrong += all.size() != kTileWords || *all.rbegin() != kTileWords - 1;
}

template <class E, bool kTurned>
void run(const Args<E>& args) {
  std::vector<uint32_t> tile(kTileWords, 0xDEADBEEF);
  for (int64_t i = 0; i < args.tiles; ++i) {
    const int64_t down = i / args.across;
    const int64_t row = down * Tile<E>::kSide, column = (i - down * args.across) * Tile<E>::kSide;
    for (unsigned thread = 0; thread < kThreads; ++thread)
      by_layout(args.input.lines.layout, [&](auto layout) {
        uint32_t words[kWordsOfThread];
        load_tile<E, layout.value, kTurned>(args.input, row, column, thread, words);
        put_tile<E, layout.value, kTurned>(words, thread, tile.data());
      });
    for (unsigned thread = 0; thread < kThreads; ++thread)
      by_layout(args.output.lines.layout, [&](auto layout) {
        store_tile<E, layout.value>(args.output, row, column, thread, tile.data());
      });
  }
}

template <class E>
void transform(Layout from, Layout to, bool turned, int64_t rows, int64_t columns, int64_t gap,
               int64_t shift, bool words) {
  int64_t in_size = 0, out_size = 0;
  const int64_t out_rows = turned ? columns : rows, out_columns = turned ? rows : columns;
  Args<E> args;
  const MatrixLines in = lines_for(from, rows, columns, gap, in_size);
  const MatrixLines out = lines_for(to, out_rows, out_columns, gap, out_size);
  // Padding of the input holds what must not be seen.
  std::vector<E> input(static_cast<std::size_t>(in_size + shift), E(0xAA));
  std::vector<E> output(static_cast<std::size_t>(out_size + shift), E(0x55)), wanted = output;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      input[static_cast<std::size_t>(shift + in.offset(r, c))] =
          static_cast<E>((r * 7919 + c * 104729 + 1) * 2654435761u >> 7);
  args.input = {input.data() + shift, in, words};
  args.output = {output.data() + shift, out, words};
  for (int64_t r = 0; r < out.held_rows(); ++r)
    for (int64_t c = 0; c < out.held_columns(); ++c) {
      const int64_t from_row = turned ? c : r, from_column = turned ? r : c;
      const bool exists = from_row < rows && from_column < columns;
      wanted[static_cast<std::size_t>(shift + out.offset(r, c))] =
          exists ? input[static_cast<std::size_t>(shift + in.offset(from_row, from_column))] : E(0);
    }
  const auto tiles = [](int64_t extent) { return (extent + Tile<E>::kSide - 1) / Tile<E>::kSide; };
  args.across = tiles(out.held_columns());
  args.tiles = args.across * tiles(out.held_rows());
  turned ? run<E, true>(args) : run<E, false>(args);
  compared += out.held_rows() * out.held_columns();
  for (std::size_t i = 0; i < output.size(); ++i) wrong += output[i] != wanted[i];
}

template <class E>
void all_layouts() {
  // Col is Row turned, which the frame sees to before.
  constexpr Layout kLayouts[] = {Layout::Row, Layout::Col32, Layout::ColTuring, Layout::ColAmpere};
  constexpr int64_t kSizes[][2] = {{1, 1},   {33, 31}, {128, 128}, {130, 257},
                                   {64, 96}, {5, 300}, {300, 5},   {7, 260}};
  for (const Layout from : kLayouts)
    for (const Layout to : kLayouts)
      for (const bool turned : {false, true})
        for (const auto& size : kSizes) {
          const bool whole = from != Layout::Row || size[1] % 4 == 0;
          const bool both = whole && (to != Layout::Row || size[turned ? 0 : 1] % 4 == 0);
          transform<E>(from, to, turned, size[0], size[1], 0, 0, both || sizeof(E) == 4);
          transform<E>(from, to, turned, size[0], size[1], 3, 1, sizeof(E) == 4);
        }
  for (const Layout layout : kLayouts)
    by_layout(layout, [](auto each) {
      watch_slots<E, each.value, false>();
      watch_slots<E, each.value, true>();
    });
}

}  // namespace

int main() {
  all_layouts<std::uint8_t>();
  all_layouts<uint32_t>();
  std::printf("%lld %lld %lld\n", static_cast<long long>(compared), static_cast<long long>(wrong),
              static_cast<long long>(conflicts));
}
