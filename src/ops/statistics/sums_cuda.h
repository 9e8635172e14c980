// Sums and maxima over a tensor on CUDA: blocks measure tiles of leaves, and one block joins what
// they found. The templates are instantiated in sums_f16.cu and its neighbours.
//
//   prepare     preload_measure<T>(measure);
//   workspace   book_tiles<C>(shape, scratch);
//   launch      launch_measure<T>(problem, operand, book_tiles<C>(shape, scratch), result, bound);
#pragma once

#include <cstdint>

#include "core/bound.h"
#include "core/operands.h"
#include "core/scratch.h"
#include "math/formats.h"
#include "ops/statistics/sums.h"

namespace planq::cuda {

// Leaves that the warps of a block measure at a time.
inline constexpr int kMeasureThreads = 256, kRoundLeaves = kMeasureThreads / 32;

struct MeasureProblem {
  Measure measure;
  bool takes_root;  // of what was measured
  std::int32_t arch;
};

// Room for a number of each tile, where there is more than one; of whatever size tiles are.
template <class C>
C* book_tiles(const Shape& shape, Scratch& scratch) {
  const std::int64_t leaves = sum_leaves(shape.elements());
  const std::int64_t tiles = leaves / kRoundLeaves + (leaves % kRoundLeaves != 0);
  return tiles > 1 ? scratch.take<C>(static_cast<std::size_t>(tiles)) : nullptr;
}
// Fields has shape and input_dtype.
template <class Fields, class T>
std::size_t tiles_workspace(const Descriptor& descriptor, const Device&) {
  Scratch counting;
  book_tiles<math::Compute<T>>(descriptor.as<Fields>().shape, counting);
  return counting.bytes();
}

template <class T>
Status preload_measure(Measure measure);
// `tiles` is from book_tiles(); `result` gets one number.
template <class T>
Status launch_measure(const MeasureProblem& problem, const OperandView& input, const Shape& shape,
                      math::Compute<T>* tiles, math::Compute<T>* result, Bound& bound);

}  // namespace planq::cuda
