// Norms of rows on the host: threads take rows, and leaves of math/tree_sum.h one after another.
#pragma once

#include "ops/norm/norm.h"

namespace planq::host {

void normalize_rows(const norm::Norm& norm, DType input_dtype, int threads);

}  // namespace planq::host
