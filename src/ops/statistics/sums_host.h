// Sums and maxima over a tensor on the host: threads measure leaves of kSumLeaf elements, and the
// caller's thread adds the leaves up.
#pragma once

#include <cstdint>

#include "core/operands.h"
#include "core/scratch.h"
#include "host/bind.h"
#include "math/formats.h"
#include "ops/statistics/sums.h"

namespace planq::host {

// Room for a number a leaf.
template <class C>
C* book_leaves(const Shape& shape, Scratch& scratch) {
  return scratch.take<C>(static_cast<std::size_t>(sum_leaves(shape.elements())));
}

// 0 without elements. `leaves` is from book_leaves().
template <class T>
math::Compute<T> measure_tensor(Measure measure, const OperandView& input, const Shape& shape,
                                math::Compute<T>* leaves, int threads);

// What the host kernels of operators with sums have in common: see sum_kernels(). `Own` computes.
template <class Operator, class Own>
struct SumKernels {
  using Fields = typename Operator::Fields;
  static constexpr std::string_view kName = Operator::kName;
  static constexpr Backend kBackend = Backend::Host;
  static constexpr ArchRange kArch = {};

  template <DType kType>
  static std::size_t workspace(const Descriptor& descriptor, const Device&) {
    Scratch counting;
    book_leaves<math::Compute<math::Stored<kType>>>(descriptor.as<Fields>().shape, counting);
    return counting.bytes();
  }
  template <DType kType>
  static constexpr auto prepare = nothing_to_prepare;
  template <DType kType>
  static constexpr auto bind = host::bind<Own::template compute<kType>>;

  // What is measured of the first operand.
  template <class T>
  static math::Compute<T> measure(Measure measure, const Call& call, const Stream& stream) {
    const Shape& shape = call.fields<Fields>().shape;
    Scratch scratch(call.workspace);
    return measure_tensor<T>(measure, call.operands[0], shape,
                             book_leaves<math::Compute<T>>(shape, scratch), stream.threads);
  }
};

// The kernels of an operator that stores one number, in its second operand: measured_of(fields).
template <class Operator>
struct NumberKernels : SumKernels<Operator, NumberKernels<Operator>> {
  template <DType kType>
  static Status compute(const Call& call, const Stream& stream) {
    using T = math::Stored<kType>;
    const Measured asked = Operator::measured_of(call.fields<typename Operator::Fields>());
    const auto measured = NumberKernels::template measure<T>(asked.measure, call, stream);
    *static_cast<math::Compute<T>*>(call.operands[1].data) =
        stored_measure(asked.takes_root ? math::root(measured) : measured);
    return Status::success();
  }
};

}  // namespace planq::host
