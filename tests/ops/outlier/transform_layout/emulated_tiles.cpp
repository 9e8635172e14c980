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

// The lanes of each warp at one instruction, each with `words` words of the tile: banks that two
// different words share, of as many lanes as shared memory serves at a time.
void meet(const std::vector<unsigned>& slots, unsigned words) {
  const std::size_t lanes = 32 / words;
  for (std::size_t first = 0; first < slots.size(); first += lanes) {
    std::set<unsigned> banks, all;
    for (std::size_t lane = first; lane < first + lanes; ++lane)
      for (unsigned i = 0; i < words; ++i) {
        all.insert(slots[lane] + i);
        banks.insert((slots[lane] + i) % 32);
      }
    conflicts += static_cast<int64_t>(all.size() - banks.size());
  }
}

// What the threads of a block access at one instruction.
struct Access {
  std::vector<unsigned> slots;
  unsigned words;
};

// Every word of the tile once.
void watch(const std::vector<Access>& accesses) {
  std::set<unsigned> all;
  for (const Access& access : accesses) {
    meet(access.slots, access.words);
    for (const unsigned slot : access.slots)
      for (unsigned i = 0; i < access.words; ++i) all.insert(slot + i);
  }
  wrong += all.size() != kTileWords || *all.rbegin() != kTileWords - 1;
}

template <class Slot>
Access of_threads(unsigned words, const Slot& slot) {
  Access access{{}, words};
  for (unsigned thread = 0; thread < kThreads; ++thread) access.slots.push_back(slot(thread));
  return access;
}

// Of a tile that is not turned: vectors, or the words of stacks.
template <class E, Layout kLayout>
void watch_vectors() {
  std::vector<Access> accesses;
  for (unsigned i = 0; i < kVectors; ++i)
    for (unsigned k = 0; k < (kStacked<E, kLayout> ? 4 : 1); ++k)
      accesses.push_back(of_threads(kStacked<E, kLayout> ? 1 : 4, [&](unsigned thread) {
        const Place place = vector_of<E, kLayout>(thread + i * kThreads);
        return slot(place.row + 2 * k, place.column / kPerWord<E>);
      }));
  watch(accesses);
}

// Of one that is: vectors of 32-bit elements, words of 8-bit ones, pairs of words of stacks.
template <class E, Layout kLayout>
void watch_turned() {
  constexpr bool kStacks = kStacked<E, kLayout>;
  const unsigned columns = sizeof(E) == 4 || kStacks ? 4 : 16;
  std::vector<Access> accesses;
  for (unsigned i = 0; i < kVectors; i += kStacks ? 2 : kVectors)
    for (unsigned k = 0; k < columns; ++k)
      accesses.push_back(of_threads(kStacks ? 2 : sizeof(E), [&](unsigned thread) {
        const Place place = turned_vector_of<E, kLayout>(thread, i);
        return slot(place.column + k, place.row / kPerWord<E>);
      }));
  watch(accesses);
}

template <class E, class Use>
void for_each_tile(const Args<E>& args, const Use& use) {
  const MatrixLines& frame = args.output.lines;
  for (int64_t row = 0; row < frame.held_rows(); row += kTileRows)
    for (int64_t column = 0; column < frame.held_columns(); column += kTileColumns<E>)
      use(row, column);
}

template <class E, bool kTurned, bool kFrom, bool kTo>
void run(const Args<E>& args) {
  std::vector<Vector> tile(kTileWords / 4, Vector{{0xDEADBEEF, 0, 0, 0}});
  auto* const words = reinterpret_cast<uint32_t*>(tile.data());
  for_each_tile<E>(args, [&](int64_t row, int64_t column) {
    for (unsigned thread = 0; thread < kThreads; ++thread)
      by_layout(args.input.lines.layout, [&](auto layout) {
        Vector vectors[kVectors];
        load_tile<E, layout.value, kTurned, kFrom>(args.input, row, column, thread, vectors);
        put_tile<E, layout.value, kTurned>(vectors, thread, words);
      });
    for (unsigned thread = 0; thread < kThreads; ++thread)
      by_layout(args.output.lines.layout, [&](auto layout) {
        store_tile<E, layout.value, kTo>(args.output, row, column, thread, words);
      });
  });
}

// What goes without shared memory.
template <class E>
void copy(const Args<E>& args) {
  for_each_tile<E>(args, [&](int64_t row, int64_t column) {
    by_layout(args.input.lines.layout, [&](auto from) {
      by_layout(args.output.lines.layout, [&](auto to) {
        if constexpr (!kStacked<E, from.value> && !kStacked<E, to.value>)
          for (unsigned thread = 0; thread < kThreads; ++thread)
            copy_tile<E, from.value, to.value>(args, row, column, thread);
      });
    });
  });
}

template <class E>
void turn_to_stacks(const Args<E>& args) {
  for_each_tile<E>(args, [&](int64_t row, int64_t column) {
    by_layout(args.input.lines.layout, [&](auto from) {
      if constexpr (sizeof(E) == 1 && !kStacked<E, from.value>)
        for (unsigned thread = 0; thread < kThreads; ++thread)
          turn_tile_to_stacks<E, from.value>(args, row, column, thread);
    });
  });
}

template <class E, bool kTurned>
void run_by_alignment(const Args<E>& args) {
  if (args.input.vectors)
    args.output.vectors ? run<E, kTurned, true, true>(args) : run<E, kTurned, true, false>(args);
  else
    args.output.vectors ? run<E, kTurned, false, true>(args) : run<E, kTurned, false, false>(args);
}

template <class E>
void transform(Layout from, Layout to, bool turned, int64_t rows, int64_t columns, int64_t gap,
               int64_t shift) {
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
  args.input = side_of<const E>(input.data() + shift, in);
  args.output = side_of(output.data() + shift, out);
  for (int64_t r = 0; r < out.held_rows(); ++r)
    for (int64_t c = 0; c < out.held_columns(); ++c) {
      const int64_t from_row = turned ? c : r, from_column = turned ? r : c;
      const bool exists = from_row < rows && from_column < columns;
      wanted[static_cast<std::size_t>(shift + out.offset(r, c))] =
          exists ? input[static_cast<std::size_t>(shift + in.offset(from_row, from_column))] : E(0);
    }
  if (is_copy(args, turned))
    copy(args);
  else if (is_turned_to_stacks(args, turned))
    turn_to_stacks(args);
  else
    turned ? run_by_alignment<E, true>(args) : run_by_alignment<E, false>(args);
  compared += out.held_rows() * out.held_columns();
  for (std::size_t i = 0; i < output.size(); ++i) wrong += output[i] != wanted[i];
}

template <class E>
void all_layouts() {
  // Col is Row turned, which the frame sees to before.
  constexpr Layout kLayouts[] = {Layout::Row, Layout::Col32, Layout::ColTuring, Layout::ColAmpere};
  constexpr int64_t kSizes[][2] = {{1, 1},   {33, 31}, {128, 128}, {130, 257}, {64, 96},
                                   {5, 300}, {300, 5}, {7, 260},   {48, 144},  {272, 16}};
  for (const Layout from : kLayouts)
    for (const Layout to : kLayouts)
      for (const bool turned : {false, true})
        for (const auto& size : kSizes) {
          transform<E>(from, to, turned, size[0], size[1], 0, 0);
          transform<E>(from, to, turned, size[0], size[1], 16, 16);
          transform<E>(from, to, turned, size[0], size[1], 4, 4);
          transform<E>(from, to, turned, size[0], size[1], 3, 1);
        }
  for (const Layout layout : kLayouts)
    by_layout(layout, [](auto each) {
      watch_vectors<E, each.value>();
      watch_turned<E, each.value>();
    });
}

}  // namespace

int main() {
  all_layouts<std::uint8_t>();
  all_layouts<uint32_t>();
  std::printf("%lld %lld %lld\n", static_cast<long long>(compared), static_cast<long long>(wrong),
              static_cast<long long>(conflicts));
}
