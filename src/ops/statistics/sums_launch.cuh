// From a tensor to the kernels that measure it: definitions of what sums_cuda.h declares.
#pragma once

#include <algorithm>

#include "ops/statistics/sums.cuh"

namespace planq::cuda {
namespace sums {

// The kernels of one measure.
template <class T>
struct MeasureKernels {
  void (*flat)(MeasureArgs<T>);
  void (*rows)(MeasureArgs<T>);
  void (*join)(JoinArgs<Compute<T>>);
};
template <Measure kMeasure, class T>
constexpr MeasureKernels<T> kernels_of() {
  return {measure_tiles<kMeasure, true, T>, measure_tiles<kMeasure, false, T>,
          join_tiles<kMeasure, Compute<T>>};
}
template <class T>
MeasureKernels<T> kernels_of(Measure measure) {
  if (measure == Measure::SquareSum) return kernels_of<Measure::SquareSum, T>();
  if (measure == Measure::MagnitudeSum) return kernels_of<Measure::MagnitudeSum, T>();
  return kernels_of<Measure::LargestMagnitude, T>();
}

// Tiles of several rounds begin where a GPU has enough to do with them.
constexpr int64_t kFewTiles = 2048;
inline int rounds_of(int64_t leaves) {
  return leaves <= kFewTiles * kRoundLeaves ? 1 : kMostRounds;
}

template <class T>
MeasureArgs<T> arguments_of(const OperandView& input, const Shape& shape) {
  MeasureArgs<T> args{};
  args.input = static_cast<const T*>(input.data);
  args.layout = element_layout(shape, Scope{}, {ElementOperand{&input}});
  args.elements = args.layout.elements();
  args.rows = LineDivider(std::max<int64_t>(args.layout.length, 1), args.elements);
  const int64_t leaves = sum_leaves(args.elements);
  args.rounds = rounds_of(leaves);
  args.tile_count = std::max<int64_t>(ceil_div(leaves, args.rounds * kRoundLeaves), 1);
  return args;
}

}  // namespace sums

template <class T>
Status preload_measure(Measure measure) {
  const sums::MeasureKernels<T> kernels = sums::kernels_of<T>(measure);
  PLANQ_TRY(preload(kernels.flat));
  PLANQ_TRY(preload(kernels.rows));
  return preload(kernels.join);
}

template <class T>
Status launch_measure(const Measured& asked, const Device& device, const OperandView& input,
                      const Shape& shape, math::Compute<T>* tiles, math::Compute<T>* result,
                      Bound& bound) {
  const sums::MeasureKernels<T> kernels = sums::kernels_of<T>(asked.measure);
  sums::MeasureArgs<T> args = sums::arguments_of<T>(input, shape);
  const sums::MeasureResult<math::Compute<T>> last = {result, asked.takes_root};
  const bool several = args.tile_count > 1;
  args.tiles = tiles;
  if (!several) args.result = last;
  const bool flat = args.layout.rows.rank == 0 && aligned_to(args.input, kVectorBytes);
  const Grid grid = {.blocks = std::min(args.tile_count, kMaxIndex),
                     .threads = dim3(kMeasureThreads)};
  PLANQ_TRY(launch(flat ? kernels.flat : kernels.rows, grid, args, bound));
  if (!several) return Status::success();
  const Grid joining = {.threads = dim3(sums::kJoinThreads),
                        .dependent = has_dependent_launches(device.arch)};
  const sums::JoinArgs<math::Compute<T>> join = {tiles, last, args.tile_count};
  return launch(kernels.join, joining, join, bound);
}

}  // namespace planq::cuda

// What a file of one input type instantiates.
#define PLANQ_SUMS(T)                                                   \
  template ::planq::Status planq::cuda::preload_measure<T>(Measure);    \
  template ::planq::Status planq::cuda::launch_measure<T>(              \
      const Measured&, const Device&, const OperandView&, const Shape&, \
      ::planq::math::Compute<T>*, ::planq::math::Compute<T>*, Bound&)
