// A call of an emulated kernel that has no workspace; see tests/support/emulated_operands.py.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "core/bound.h"
#include "core/registry.h"

namespace emulated {

// An operand; one that is not there has no data. Outer strides are in elements.
struct Given {
  void* data;
  std::int64_t strides[3];
  std::int32_t rank;
};

// Operands in the order of the operator. A scalar in memory is float64.
template <class Fields>
void run(const Fields& fields, const Given* given, std::size_t count, int multiprocessors,
         planq::Status (*bind)(const planq::Call&, planq::Bound&)) {
  std::vector<planq::OperandView> views(count);
  for (std::size_t i = 0; i < count; ++i) {
    views[i].data = given[i].data;
    views[i].rank = given[i].rank;
    if (given[i].data) views[i].dtype = planq::DType::Float64;
    std::copy_n(given[i].strides, 3, views[i].strides.begin());
  }
  planq::Descriptor descriptor;
  descriptor.as<Fields>() = fields;
  planq::Device device;
  device.multiprocessors = multiprocessors;
  planq::State state;
  planq::Bound bound;
  if (!bind({descriptor, device, state, planq::Operands(views), {}}, bound).ok()) std::abort();
}

}  // namespace emulated
