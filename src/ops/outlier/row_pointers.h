// Where each row begins in a row-major list of entries, on CUDA: a search for each row.
#pragma once

#include <cstdint>

#include "core/bound.h"
#include "ops/outlier/coo.h"

namespace planq::outlier {

struct PointerArgs {
  const std::int32_t* row_index;
  const int64_t* count;
  std::int32_t* pointer;
  int64_t capacity, pointers;
};

Status preload_pointers();
Status launch_pointers(const PointerArgs& args, Bound& bound);

}  // namespace planq::outlier
