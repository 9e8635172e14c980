// Sums and maxima over a tensor on CUDA: blocks measure tiles of leaves, and one block joins what
// they found. The templates are instantiated in sums_f16.cu and its neighbours.
//
//   prepare     preload_measure<T>(measure);
//   workspace   book_tiles<C>(shape, scratch);
//   launch      launch_measure<T>(measured, device, operand, book_tiles<C>(shape, scratch), result,
//   bound);
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

// Room for a number of each tile, where there is more than one; of whatever size tiles are.
template <class C>
C* book_tiles(const Shape& shape, Scratch& scratch) {
  const std::int64_t leaves = sum_leaves(shape.elements());
  const std::int64_t tiles = leaves / kRoundLeaves + (leaves % kRoundLeaves != 0);
  return tiles > 1 ? scratch.take<C>(static_cast<std::size_t>(tiles)) : nullptr;
}

template <class T>
Status preload_measure(Measure measure);
// `tiles` is from book_tiles(); `result` gets one number.
template <class T>
Status launch_measure(const Measured& asked, const Device& device, const OperandView& input,
                      const Shape& shape, math::Compute<T>* tiles, math::Compute<T>* result,
                      Bound& bound);

// What the CUDA kernels of operators with sums have in common: see sum_kernels().
template <class Operator>
struct SumKernels {
  using Fields = typename Operator::Fields;
  static constexpr std::string_view kName = Operator::kName;
  static constexpr Backend kBackend = Backend::Cuda;
  static constexpr ArchRange kArch = {80};
};

// The kernels of an operator that stores one number, in its second operand: measured_of(fields).
template <class Operator>
struct NumberKernels : SumKernels<Operator> {
  using typename SumKernels<Operator>::Fields;

  template <DType kType>
  static std::size_t workspace(const Descriptor& descriptor, const Device&) {
    Scratch counting;
    book_tiles<math::Compute<math::Stored<kType>>>(descriptor.as<Fields>().shape, counting);
    return counting.bytes();
  }
  template <DType kType>
  static Status prepare(const Descriptor& descriptor, const Device&, State&) {
    const Measured asked = Operator::measured_of(descriptor.as<Fields>());
    return preload_measure<math::Stored<kType>>(asked.measure);
  }
  template <DType kType>
  static Status bind(const Call& call, Bound& bound) {
    using T = math::Stored<kType>;
    using C = math::Compute<T>;
    const Fields& f = call.fields<Fields>();
    Scratch scratch(call.workspace);
    return launch_measure<T>(Operator::measured_of(f), call.device, call.operands[0], f.shape,
                             book_tiles<C>(f.shape, scratch),
                             static_cast<C*>(call.operands[1].data), bound);
  }
};

}  // namespace planq::cuda
