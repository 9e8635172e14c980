// Groups on CUDA: what encode_f16.cu and its like instantiate.
#pragma once

#include "core/bound.h"
#include "ops/group/group.h"

namespace planq::cuda {

template <class T>
Status preload_groups(const Grouping& grouping);
template <class T>
Status encode_groups(const GroupEncoding& encoding, const OperandView& input,
                     const OperandView& output, const GroupMemory<T>& parameters,
                     int multiprocessors, Bound& bound);

}  // namespace planq::cuda
